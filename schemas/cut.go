package schemas

import "unicode/utf8"

// CutUTF8 shortens v to at most n bytes without splitting a character. It is the one cutter for
// others' text: reasons, error texts, ids. Other bytes than UTF-8 are cut at n bytes.
func CutUTF8[T string | []byte](v T, n int) T {
	if len(v) <= n {
		return v
	}
	for i := n; i > n-utf8.UTFMax && i >= 0; i-- {
		if utf8.RuneStart(v[i]) {
			return v[:i]
		}
	}
	return v[:n]
}
