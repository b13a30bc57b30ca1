// Package wrap says what failed: an error and what was being done go in, one error comes out.
package wrap

import "fmt"

// Err adds what was being done to an error, in front of it and after the rules of fmt.Sprintf.
// Without an error it returns nil, so the last call of a function needs no condition.
func Err(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(doing, args...), err)
}
