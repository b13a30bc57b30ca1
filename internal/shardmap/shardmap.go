// Package shardmap tells which of several databases a target lives in. Rules go in, in the order of
// their numbers; the number of a database comes out.
//
// A rule holds for the records of a partition from one offset on, its cut, which is the same in all
// databases. So each record is one database's, whoever reads it, and whenever.
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
	Pattern string // as of path.Match
	// Part of Parts: only targets with that hash, from 1 on. 0 of 0: all.
	Part, Parts   int
	Former, Shard int // from that database to that one
	// Token names the announcement, so that two of the same number are not taken for one.
	Token string
	// Held: the rule holds from its cuts on. Otherwise it is announced, and may be taken back.
	Held bool
	Cuts map[Partition]int64
}

// Partition is one of an intake topic. A topic made anew has another id, and a cut at its begin.
type Partition struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
}

// Check returns what is wrong with a rule's pattern and part.
func (r Rule) Check() error {
	if _, err := path.Match(r.Pattern, ""); err != nil || r.Pattern == "" {
		return fmt.Errorf("the pattern %q is none: write a target, or a pattern such as orders.*", r.Pattern)
	}
	if (r.Part != 0 || r.Parts != 0) && (r.Part < 1 || r.Parts < r.Part) {
		return fmt.Errorf("the part %d/%d is none: write the first of three as 1/3", r.Part, r.Parts)
	}
	if r.Parts > mostParts {
		return fmt.Errorf("the part is one of %d: write one of at most %d", r.Parts, mostParts)
	}
	return nil
}

const mostParts = 1000

// Matches tells whether the rule is about a target, wherever it lives.
func (r Rule) Matches(target string) bool {
	if target == "" { // * matches it too
		return false
	}
	if ok, err := path.Match(r.Pattern, target); !ok || err != nil {
		return false
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

// Map is all rules, in the order of their numbers.
type Map struct {
	Version int64 // changes with each change of the rules; 0: there is one database
	Rules   []Rule
}

// Home returns where a target lives.
func (m *Map) Home(target string) int { return m.Homes(target)[0] }

// Homes returns where a target lives, then where it lived before, the latest first.
func (m *Map) Homes(target string) []int {
	home := Home
	homes := []int{home}
	for _, r := range m.Rules {
		if r.Held && r.Former == home && r.Matches(target) {
			home = r.Shard
			homes = slices.DeleteFunc(homes, func(n int) bool { return n == home })
			homes = slices.Insert(homes, 0, home)
		}
	}
	return homes
}

// At returns whose a record is. Not decided: it may come under a rule that is announced.
func (m *Map) At(target string, p Partition, offset int64) (shard int, decided bool) {
	home := Home
	for _, r := range m.Rules {
		if r.Former != home || !r.Matches(target) {
			continue
		}
		if !r.Held {
			return home, false
		}
		if offset >= r.Cuts[p] {
			home = r.Shard
		}
	}
	return home, true
}

// Announced returns the rule that may still be taken back; nil: there is none.
func (m *Map) Announced() *Rule {
	for i, r := range m.Rules {
		if !r.Held {
			return &m.Rules[i]
		}
	}
	return nil
}
