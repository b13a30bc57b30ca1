package sample

import "testing"

func equal[T comparable](t *testing.T, want, got T) {
	t.Helper()
	if want != got {
		t.Errorf("%v instead of %v", got, want)
	}
}

func TestSum(t *testing.T) {
	sum, taken := Sum([]int{0, 1, -1, 3, 4, 2}, 3)
	equal(t, [2]int{4, 2}, [2]int{sum, taken})
	sum, taken = Sum([]int{-1}, 0)
	equal(t, [2]int{-1, 0}, [2]int{sum, taken})
}

func TestKind(t *testing.T) {
	loud, quiet := func() bool { return false }, func() bool { return true }
	equal(t, "", Kind(1, false, loud))
	equal(t, "", Kind(-2, true, loud))
	equal(t, "even", Kind(0, true, loud))
	equal(t, "even", Kind(4, true, loud))
	equal(t, "odd", Kind(6, true, quiet))
	equal(t, "odd", Kind(3, true, loud))
	equal(t, "large", Kind(333, true, loud))
}

func TestPause(t *testing.T) {
	equal(t, 2e9, Pause(2))
	equal(t, 0, Pause(0))
	equal(t, 2e9-1, Pause(-2))
}
