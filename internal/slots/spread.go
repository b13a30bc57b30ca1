package slots

import (
	"slices"

	jump "github.com/dgryski/go-jump"
)

// Spread says in which line the tasks of a key stand. A Spread never changes.
//
// A key's first line comes from the base count. Once that line is split, its keys are spread over
// the target count. While nothing changes, base and target are one number and no line is split. The
// zero value has one line.
type Spread struct {
	base, target int
	rows         int    // lines of which the database has a row: 0..rows-1
	split        []bool // by line; nil: none is
}

// Even is the spread over n lines while their number does not change.
func Even(n int) Spread { return Spread{base: n, target: n, rows: n} }

// Changing is the spread on the way from base to target lines. split tells, by line, which are
// split already. rows is the number of the database's rows of lines.
func Changing(base, target, rows int, split []bool) Spread {
	return Spread{base: base, target: target, rows: rows, split: slices.Clone(split)}
}

// Of returns the line of a task, as the function Of does for one count.
func (s Spread) Of(topic string, key []byte, id string) int {
	if s.split == nil {
		return Of(topic, key, id, s.base)
	}
	h := hash(topic, key, id)
	first := line(h, s.base)
	if first < len(s.split) && s.split[first] {
		return line(h, s.target)
	}
	return first
}

func line(h uint64, n int) int { return int(jump.Hash(h, max(n, 1))) }

// Base is the count that finds a key's first line.
func (s Spread) Base() int { return s.base }

// Target is the count over which all keys are to be spread.
func (s Spread) Target() int { return s.target }

// Count is the count over which the keys of a line are spread.
func (s Spread) Count(line int) int {
	if line < len(s.split) && s.split[line] {
		return s.target
	}
	return s.base
}

// Rows is how many lines the database has rows of: ended tasks stand in each of them.
func (s Spread) Rows() int { return s.rows }

// Whole tells whether the number of lines does not change.
func (s Spread) Whole() bool { return s.base == s.target }

// Home is where a task belongs once its line is split: in the same line, unless the task leaves.
func (s Spread) Home(topic string, key []byte, id string) int {
	return Of(topic, key, id, s.target)
}

// Leaving tells whether keys of a line leave on the way from base to target lines. To more lines,
// keys of each line leave; to fewer, those of the removed lines.
func Leaving(line, base, target int) bool {
	return line < base && (target > base || line >= target)
}
