// Package tables holds how rows of the store's tables are read, and parts of statements that name
// many rows. Each list of columns stands here once, beside the function that scans it.
package tables

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
)

// A statement has at most this many rows or bytes. So its fixed cost (about 100 µs) is spread over
// many rows. It stays far below max_allowed_packet (16 MiB on MariaDB) and keeps the parser's
// memory small. From a thousand values on, MariaDB makes a temporary table of an IN list, which
// costs more than the lookups.
const (
	MaxRows  = 900
	MaxBytes = 4 << 20
)

// MaxRanges bounds the pieces of lines in a statement: SQLite's expressions are a thousand deep.
const MaxRanges = 500

// Marks returns n placeholders: "?,?,?".
func Marks(n int) string {
	if n == 0 {
		return "NULL"
	}
	return strings.Repeat("?,", n-1) + "?"
}

// Ints are numbers as a list in a statement: many cost less than as arguments.
func Ints(values []int64) string {
	out := make([]byte, 0, 20*len(values))
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, v, 10)
	}
	return string(out)
}

// Args are values as arguments of a statement.
func Args[T any](values []T) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

// Idents are the identities of tasks as arguments of a statement.
func Idents[T any](of []T, ident func(T) [16]byte) []any {
	out := make([]any, len(of))
	for i, v := range of {
		key := ident(v)
		out[i] = key[:]
	}
	return out
}

// Chunks cuts values into runs of at most MaxRows.
func Chunks[T any](values []T, f func([]T) error) error {
	for part := range slices.Chunk(values, MaxRows) {
		if err := f(part); err != nil {
			return err
		}
	}
	return nil
}

// ExecIn runs a statement about the rows with one of the values, a run of values at a time. The
// query ends with the column's name, and before are its arguments.
func ExecIn[T any](ctx context.Context, tx *sql.Tx, query string, values []T, before ...any) error {
	return Chunks(values, func(part []T) error {
		list, args := listed(part)
		_, err := tx.ExecContext(ctx, query+" IN ("+list+")", slices.Concat(before, args)...)
		return err
	})
}

// listed returns the inside of IN (…) for values, with arguments unless they are Ints.
func listed[T any](values []T) (string, []any) {
	if numbers, ok := any(values).([]int64); ok {
		return Ints(numbers), nil
	}
	return Marks(len(values)), Args(values)
}

// Pieces cuts values into runs of at most MaxRows values and about MaxBytes.
func Pieces[T any](values []T, size func(T) int, f func([]T) error) error {
	for len(values) > 0 {
		n, bytes := 0, 0
		for n < len(values) && n < MaxRows && bytes < MaxBytes {
			bytes += size(values[n])
			n++
		}
		if err := f(values[:n]); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}

// MaxCases is how many cases a CASE in an UPDATE has: the server tries all of them for each row.
const MaxCases = 100
