package main

// helper is added to the package under test. A program with mutants writes the number of each one that it passes to the file
// MUTANT_PASSED, if that is set, and obeys the mutant MUTANT.
const helper = `
import (
	mutantFmt "fmt"
	mutantOS "os"
	mutantStrconv "strconv"
	mutantSync "sync"
)

var (
	mutantChosen, _ = mutantStrconv.Atoi(mutantOS.Getenv("MUTANT"))
	mutantPassed    = mutantOS.Getenv("MUTANT_PASSED")
	mutantSeen      mutantSync.Map
)

func mutantIs(id int) bool {
	if mutantPassed != "" {
		if _, seen := mutantSeen.LoadOrStore(id, true); !seen {
			f, err := mutantOS.OpenFile(mutantPassed, mutantOS.O_APPEND|mutantOS.O_CREATE|mutantOS.O_WRONLY, 0o600)
			if err != nil {
				panic(err)
			}
			mutantFmt.Fprintln(f, id)
			_ = f.Close()
		}
	}
	return mutantChosen == id
}

func mutantNone(ids ...int) bool {
	for _, id := range ids {
		if mutantChosen == id {
			return false
		}
	}
	return true
}

func mutantNot(id int, x bool) bool { return x != mutantIs(id) }

func mutantAnd(id int, x bool, y func() bool) bool {
	if mutantIs(id) {
		return x || y()
	}
	return x && y()
}

func mutantOr(id int, x bool, y func() bool) bool {
	if mutantIs(id) {
		return x && y()
	}
	return x || y()
}

type mutantNumbers interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

func mutantNumber[T mutantNumbers](id int, op rune, x, y T) T {
	if mutantIs(id) {
		op = map[rune]rune{'+': '-', '-': '+', '*': '/', '/': '*', '%': '*'}[op]
	}
	switch op {
	case '+':
		return x + y
	case '-':
		return x - y
	case '*':
		return x * y
	case '/':
		return x / y
	}
	return x - x/y*y
}

func mutantMinus[T mutantNumbers](id int, x T) T {
	if mutantIs(id) {
		return x
	}
	return -x
}

`
