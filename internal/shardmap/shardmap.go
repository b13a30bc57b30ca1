// Package shardmap tells which of several databases a target lives in. Rules go in, in the order of
// their numbers; the number of a database comes out.
//
// A rule holds for the records of a partition from one offset on, the same cut in all databases. So
// each record is one database's, at any time and for any reader.
package shardmap

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/slots"
)

// Home is the database of targets without a rule, and of records that name no target.
const Home = 0

// Rule moves targets of one database to another.
type Rule struct {
	N       int    // from 1 on, in order
	Pattern string // as of path.Match; * matches all
	// Part of Parts: only targets with that hash, from 1 on. 0 of 0: all.
	Part, Parts   int
	Former, Shard int // from that database to that one
	// Token names the announcement, so that two of the same number are not taken for one.
	Token string
	// Held: the rule holds from its cuts on. Otherwise it is announced, and may be taken back.
	Held bool
	Cuts map[Partition]int64
	// Followed: the former database has no task of the targets any more. Before, their tasks are on
	// the way, and there is no other move.
	Followed bool
}

// Removal returns the rule by which a database without targets leaves the installation. Its number
// may come again, for another database.
func Removal(n int) Rule { return Rule{Pattern: "*", Former: n, Shard: n} }

// Removes reports whether the rule is that a database leaves the installation.
func (r Rule) Removes() bool { return r.Former == r.Shard }

// Partition is one of an intake topic. A topic made anew has another id, and a cut at its begin.
type Partition struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
}

// Mistake returns what is wrong with a rule's pattern or part; "": nothing is.
func (r Rule) Mistake() (field, problem string) {
	if _, err := path.Match(r.Pattern, ""); err != nil || r.Pattern == "" {
		return "pattern", "is none: write a target, or a pattern such as orders.*"
	}
	if (r.Part != 0 || r.Parts != 0) && (r.Part < 1 || r.Parts < r.Part) {
		return "part", "is none: write the first of three as 1/3"
	}
	if r.Parts > mostParts {
		return "part", fmt.Sprintf("is one of %d: write one of at most %d", r.Parts, mostParts)
	}
	return "", ""
}

// Check returns what is wrong with a rule.
func (r Rule) Check() error {
	if field, problem := r.Mistake(); problem != "" {
		return fmt.Errorf("the %s %s", field, problem)
	}
	return nil
}

const mostParts = 1000

// Matches tells whether the rule is about a target, wherever it lives.
func (r Rule) Matches(target string) bool {
	if target == "" { // * matches it too
		return false
	}
	if ok, err := path.Match(r.Pattern, target); r.Pattern != "*" && (!ok || err != nil) {
		return false // * matches origins too, which have slashes
	}
	return r.Parts == 0 || slots.Part(target, r.Parts) == r.Part-1
}

// Literal returns the only target that the pattern matches; "": it may match several.
func (r Rule) Literal() string {
	if strings.ContainsAny(r.Pattern, `*?[\`) {
		return ""
	}
	return r.Pattern
}

// Meets tells whether a target may match both rules.
func (r Rule) Meets(other Rule) bool {
	switch mine, theirs := r.Literal(), other.Literal(); {
	case mine != "":
		return other.Matches(mine)
	case theirs != "":
		return r.Matches(theirs)
	}
	return true
}

// Map is all rules, in the order of their numbers.
type Map struct {
	Version int64 // changes with each change of the rules; 0: there is one database
	Rules   []Rule
}

// Home returns where a target lives.
func (m *Map) Home(target string) int { return m.Homes(target)[0] }

// Homes returns the present home of a target, then the former ones, the latest first.
func (m *Map) Homes(target string) []int {
	home := Home
	homes := []int{home}
	for _, r := range m.Rules {
		if r.Held && r.Removes() {
			homes = slices.DeleteFunc(homes, func(n int) bool { return n == r.Shard && n != home })
		} else if r.Held && r.Former == home && r.Matches(target) {
			home = r.Shard
			homes = slices.DeleteFunc(homes, func(n int) bool { return n == home })
			homes = slices.Insert(homes, 0, home)
		}
	}
	return homes
}

// At returns whose a record is. Not decided: an announced rule may decide; or the target has come
// back to a database that was set back, and its tasks of before have not left once more: what the
// record makes would leave with them.
func (m *Map) At(target string, p Partition, offset int64) (shard int, decided bool) {
	home := Home
	var leave []int // databases whose tasks follow
	for _, r := range m.Rules {
		if r.Former != home || r.Removes() || !r.Matches(target) {
			continue
		}
		if !r.Held {
			return home, false
		}
		if offset >= r.Cuts[p] {
			if !r.Followed {
				leave = append(leave, home)
			}
			home = r.Shard
		}
	}
	return home, !slices.Contains(leave, home)
}

// Later returns the map that knows more, of two copies.
func (m *Map) Later(other *Map) *Map {
	if other.steps() > m.steps() {
		return other
	}
	return m
}

// steps counts what has happened: rules have come into force, and tasks have followed.
func (m *Map) steps() (n int) {
	for _, r := range m.Rules {
		if r.Held {
			n++
			if r.Followed {
				n++
			}
		}
	}
	return n
}

// Plan returns the rules that have the targets of a rule live in its database, whichever has them
// now: one for each that may have some.
func (m *Map) Plan(rule Rule) (out []Rule) {
	formers := []int{Home}
	for _, r := range m.Rules {
		if r.Held && r.Removes() {
			formers = slices.DeleteFunc(formers, func(n int) bool { return n == r.Shard })
		} else if r.Held && !slices.Contains(formers, r.Shard) {
			formers = append(formers, r.Shard)
		}
	}
	slices.Sort(formers)
	if target := rule.Literal(); target != "" {
		formers = []int{m.Home(target)}
	}
	for _, former := range formers {
		if rule.Former = former; former != rule.Shard && !m.moved(rule) {
			out = append(out, rule)
		}
	}
	return out
}

// moved reports whether a rule would change nothing.
func (m *Map) moved(rule Rule) bool {
	for _, r := range slices.Backward(m.Rules) {
		switch {
		case !r.Held:
		case r.Pattern == rule.Pattern && r.Part == rule.Part && r.Parts == rule.Parts && r.Former == rule.Former && r.Shard == rule.Shard:
			return true
		case r.Former == rule.Shard || r.Shard == rule.Former: // some may have gone back
			return false
		}
	}
	return false
}

// Left reports whether all targets that the i-th rule brought to its database have left it since,
// with their tasks.
func (m *Map) Left(i int) bool {
	r := m.Rules[i]
	return slices.ContainsFunc(m.Rules[i+1:], func(later Rule) bool {
		return later.Held && later.Followed && later.Former == r.Shard && (later.Pattern == "*" && later.Parts == 0 ||
			later.Pattern == r.Pattern && later.Part == r.Part && later.Parts == r.Parts)
	})
}

// Gone reports whether one of the i-th rule's databases has left the installation since.
func (m *Map) Gone(i int) bool {
	r := m.Rules[i]
	return slices.ContainsFunc(m.Rules[i:], func(later Rule) bool {
		return later.Held && later.Removes() && (later.Shard == r.Shard || later.Shard == r.Former)
	})
}

// InForce returns how many rules are in force.
func (m *Map) InForce() (n int) {
	for _, r := range m.Rules {
		if r.Held {
			n++
		}
	}
	return n
}

// Following returns the rule in force whose tasks are on the way; nil: there is none.
func (m *Map) Following() *Rule {
	for i, r := range m.Rules {
		if r.Held && !r.Followed {
			return &m.Rules[i]
		}
	}
	return nil
}

// Moves reports whether a target may leave its database, or its tasks follow. "": any target. A
// database that leaves the installation has no targets.
func (m *Map) Moves(target string) bool {
	for _, r := range []*Rule{m.Announced(), m.Following()} {
		if r != nil && !r.Removes() && (target == "" || r.Matches(target)) {
			return true
		}
	}
	return false
}

// Announced returns the rule to be decided; nil: there is none.
func (m *Map) Announced() *Rule {
	for i, r := range m.Rules {
		if !r.Held {
			return &m.Rules[i]
		}
	}
	return nil
}
