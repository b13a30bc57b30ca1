package task

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"

	"github.com/notyet/notyet/schemas"
)

// MaxSummed bounds, in bytes, each value that is added field by field. The store's transaction
// waits for the addition. A server closes a connection that is silent for seconds, and the same
// batch would then fail again and again.
const MaxSummed = 256 << 10

// sumCost is the cost of an added byte, in copied bytes.
const sumCost = 64

// mergeCost is the cost of merging a value into a body, in copied bytes. Each merge works on the
// whole value, so many small requests for one large task cost a multiple of their size.
func mergeCost(old *schemas.Body, mode schemas.MergeMode, value []byte) int {
	n := len(value)
	if old != nil {
		n += len(old.Value)
	}
	switch mode {
	case schemas.MergeSum:
		return n * sumCost
	case schemas.MergeAppend:
		return n
	}
	return 0
}

// mergeValue combines the value of a pending task (old nil: there is none) with a newer request's.
// A merged value stays within the limit of the intake, like a single value. Otherwise a task that
// is merged again and again outgrows its column, and every merge writes all of it.
func mergeValue(old *schemas.Body, mode schemas.MergeMode, value []byte, limit int) (merged []byte, err error) {
	if limit == 0 { // taken by the version before
		limit = schemas.DefaultMaxValueBytes
	}
	switch mode {
	case schemas.MergeSum:
		merged, err = sumValues(old, value)
	case schemas.MergeAppend:
		merged, err = appendValues(old, value)
	default:
		return value, nil
	}
	if err == nil && old != nil && len(merged) > limit {
		return nil, fmt.Errorf("cannot be merged: the task would have %d bytes, and %d are allowed: use another id, or let it be delivered first", len(merged), limit)
	}
	return merged, err
}

func appendValues(old *schemas.Body, value []byte) ([]byte, error) {
	value = bytes.TrimSpace(value)
	if !json.Valid(value) {
		return nil, errors.New("is not JSON, which notyet-merge append needs")
	}
	var list []byte
	switch {
	case old == nil:
		list = []byte{'['}
	case old.Settings.IfExists == schemas.Merge && old.Settings.Merge == schemas.MergeAppend:
		list = append(bytes.Clone(old.Value[:len(old.Value)-1]), ',') // it is "[…]", made here
	case json.Valid(old.Value):
		list = append(append([]byte{'['}, bytes.TrimSpace(old.Value)...), ',')
	default:
		return nil, errors.New("cannot be appended: the pending task's value is not JSON")
	}
	return append(append(list, value...), ']'), nil
}

func sumValues(old *schemas.Body, value []byte) ([]byte, error) {
	if len(value) > MaxSummed {
		return nil, fmt.Errorf("cannot be added: it has %d bytes, and %d are allowed: send less at once, or merge by append", len(value), MaxSummed)
	}
	b, err := parseObject(value)
	if err != nil {
		return nil, fmt.Errorf("is not a JSON object, which notyet-merge sum needs: %w", err)
	}
	if old == nil {
		return value, nil
	}
	if len(old.Value) > MaxSummed {
		return nil, fmt.Errorf("cannot be added: the pending task's value has %d bytes, and %d are allowed: use another id, or let it be delivered first", len(old.Value), MaxSummed)
	}
	a, err := parseObject(old.Value)
	if err != nil {
		return nil, fmt.Errorf("cannot be added: the pending task's value is not a JSON object: %w", err)
	}
	if err := addInto(a, b); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(a); err != nil {
		return nil, err
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}

// parseObject keeps numbers as written, because a float64 would lose digits. Errors, also of
// adding, repeat nothing of the value: who may read reasons may not read values.
func parseObject(b []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("it is no JSON at byte %d", dec.InputOffset())
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more follows behind the first JSON value")
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("it is another kind of JSON value")
	}
	return m, nil
}

// addInto adds the numbers of b to those of a, leaf by leaf. Other leaves become b's, the later.
func addInto(a, b map[string]any) error {
	for k, later := range b {
		switch l := later.(type) {
		case json.Number:
			if e, ok := a[k].(json.Number); ok {
				sum, err := addNumbers(e, l)
				if err != nil {
					return err
				}
				later = sum
			}
		case map[string]any:
			if e, ok := a[k].(map[string]any); ok {
				if err := addInto(e, l); err != nil {
					return err
				}
				later = e
			}
		}
		a[k] = later
	}
	return nil
}

// addNumbers is exact: decimal fractions have finite decimal sums.
func addNumbers(a, b json.Number) (json.Number, error) {
	x, px, err := parseNumber(a)
	if err != nil {
		return "", err
	}
	y, py, err := parseNumber(b)
	if err != nil {
		return "", err
	}
	s := x.Add(x, y).FloatString(max(px, py))
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		s = "0"
	}
	return json.Number(s), nil
}

// maxExponent keeps "1e999999999" from becoming a gigabyte of digits; float64 ends at 308.
// maxDigits does the same for written out numbers: arithmetic on a million digits takes seconds,
// and other tasks wait for the transaction.
const (
	maxExponent = 308
	maxDigits   = 4096
)

// parseNumber also returns how many decimal places the number has.
func parseNumber(n json.Number) (*big.Rat, int, error) {
	if len(n) > maxDigits {
		return nil, 0, fmt.Errorf("a number of %d characters is too large or too small to be added", len(n))
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(n.String()), "e")
	_, fraction, _ := strings.Cut(mantissa, ".")
	exp := 0
	if exponent != "" {
		var err error
		if exp, err = strconv.Atoi(exponent); err != nil || exp > maxExponent || exp < -maxExponent {
			return nil, 0, errors.New("a number is too large or too small to be added: its exponent lies beyond ±308")
		}
	}
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		return nil, 0, errors.New("a number cannot be read")
	}
	return r, max(len(fraction)-exp, 0), nil
}
