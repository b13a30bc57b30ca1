// Package sample has a place for each kind of mutant. Its tests notice all but one.
package sample

import "time"

const none = -1

type span = time.Duration

// Sum adds what is positive and at most limit, and stops behind the first one that is above it.
func Sum(all []int, limit int) (sum, taken int) {
	for i := 0; i < len(all); i++ {
		n := all[i]
		if n <= 0 {
			continue
		}
		if n > limit {
			break
		}
		sum += n
		taken++
	}
	if limit -= sum; taken == 0 { // a statement in a head has no mutants
		return none, 0
	}
	return sum, taken
}

// Kind says in words what a number is.
func Kind(n int, known bool, quiet func() bool) string {
	var rest = "odd" // a comment that ends behind its declaration
	switch half := n / 2; {
	case !known || n < 0:
		return ""
	case half*2 == n && !quiet():
		return "even"
	case n > 100: // no test asks for 100 and 101
		return "large"
	}
	return rest
}

// Pause grows with each attempt, and turns about below zero.
func Pause(attempt int64) span {
	if d := span(attempt) * time.Second; d >= 0 {
		return d
	}
	return -span(attempt)*time.Second - 1
}

// Never is passed by no test.
func Never(n int) bool { return n%3 == 1 }
