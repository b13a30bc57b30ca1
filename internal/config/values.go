package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written as a number or with KiB, MiB or GiB.
type Size int64

// String uses the largest unit with a whole number.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

var sizeUnits = []struct {
	name string
	size Size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

var (
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
	intakesType  = reflect.TypeFor[[]Intake]()
	shardsType   = reflect.TypeFor[[]Shard]()
)

// assign sets a field to a value from the file (any YAML type) or from a variable or flag (text).
// The error says what is accepted.
func assign(into reflect.Value, raw any) error {
	switch {
	case into.Type() == durationType:
		d, err := time.ParseDuration(scalar(raw))
		if err != nil {
			return errors.New("write a duration such as 500ms, 20s or 2h")
		}
		into.SetInt(int64(d))
	case into.Type() == sizeType:
		n, err := parseSize(scalar(raw))
		if err != nil {
			return err
		}
		into.SetInt(int64(n))
	case into.Type() == intakesType:
		return assignIntakes(into, raw)
	case into.Type() == shardsType:
		return assignShards(into, raw)
	case into.Kind() == reflect.Slice:
		list, err := texts(raw)
		if err != nil {
			return err
		}
		into.Set(reflect.ValueOf(list))
	default:
		return assignPlain(into, raw)
	}
	return nil
}

func assignPlain(into reflect.Value, raw any) error {
	if !isScalar(raw) {
		return errors.New("write one value")
	}
	text := scalar(raw)
	switch into.Kind() {
	case reflect.String:
		into.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("write true or false")
		}
		into.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return errors.New("write a whole number")
		}
		into.SetInt(int64(n))
	default:
		return fmt.Errorf("a field of type %s cannot be set", into.Type())
	}
	return nil
}

// assignIntakes accepts names, or mappings with the keys of Intake.
func assignIntakes(into reflect.Value, raw any) error {
	entries, ok := raw.([]any)
	if !ok {
		names, err := texts(raw)
		if err != nil {
			return err
		}
		for _, n := range names {
			entries = append(entries, n)
		}
	}
	out := make([]Intake, len(entries))
	for i, e := range entries {
		settings, isMapping := e.(map[string]any)
		if !isMapping {
			if !isScalar(e) {
				return fmt.Errorf("entry %d: write a name or a mapping with the key topic", i+1)
			}
			out[i].Topic, out[i].own = scalar(e), map[string]bool{"topic": true}
			continue
		}
		out[i].own = map[string]bool{}
		for key, v := range settings {
			f, known := find(intakeFields, key)
			if !known {
				return fmt.Errorf("entry %d: %s", i+1, unknownFix(key, keysOf(intakeFields)))
			}
			if err := assign(reflect.ValueOf(&out[i]).Elem().FieldByIndex(f.index), v); err != nil {
				return fmt.Errorf("entry %d, %s: %w", i+1, key, err)
			}
			if key == "allowed-targets" && len(out[i].AllowedTargets) == 0 {
				return fmt.Errorf("entry %d, %s: it is empty: write patterns, or remove it", i+1, key)
			}
			out[i].own[key] = true
		}
	}
	into.Set(reflect.ValueOf(out))
	return nil
}

func unknownFix(name string, candidates []string) string {
	if near := nearest(name, candidates); near != "" {
		return "no setting is called " + strconv.Quote(name) + ", did you mean " + near + "?"
	}
	return "no setting is called " + strconv.Quote(name)
}

// texts accepts a list, or text with commas.
func texts(raw any) ([]string, error) {
	var out []string
	switch v := raw.(type) {
	case []any:
		for _, e := range v {
			if !isScalar(e) {
				return nil, errors.New("write a list of single values")
			}
			out = append(out, scalar(e))
		}
	default:
		if !isScalar(raw) {
			return nil, errors.New("write a list, or values separated by commas")
		}
		for part := range strings.SplitSeq(scalar(raw), ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	return out, nil
}

func isScalar(raw any) bool {
	switch raw.(type) {
	case string, bool, int, int64, uint64, float64:
		return true
	}
	return false
}

// scalar returns the text of a value parsed by YAML as another type.
func scalar(raw any) string {
	if f, ok := raw.(float64); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprint(raw)
}

func parseSize(text string) (Size, error) {
	fix := errors.New("write a number of bytes, or a number with KiB, MiB or GiB")
	number, unit := text, Size(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.size
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		return 0, fix
	}
	return Size(n) * unit, nil
}
