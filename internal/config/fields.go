package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

const envPrefix = "NOTYET_"

type field struct {
	key    string // such as kafka.sasl.password
	index  []int  // for reflect's FieldByIndex
	secret bool   // messages do not show its value
	inFile bool   // they do not show what is in the file that it names
	live   bool   // a service takes a new value over while it runs
	first  bool   // also where there was none before
	last   bool   // also that there is none any longer
	// restricts says what to write in a closing key; "": the key restricts nothing.
	restricts string
}

func (f field) env() string { return EnvName(f.key) }

// EnvName returns the variable of a key.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// fields are the settings of Config, in the order of the source.
var fields = leaves(reflect.TypeFor[Config](), "", nil)

// intakeFields are the settings of one entry of intake.topics.
var intakeFields = leaves(reflect.TypeFor[Intake](), "", nil)

func leaves(t reflect.Type, prefix string, index []int) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		at := append(append([]int(nil), index...), i)
		key := prefix + f.Tag.Get("key")
		if f.Type.Kind() == reflect.Struct {
			out = append(out, leaves(f.Type, key+".", at)...)
			continue
		}
		live := f.Tag.Get("live")
		out = append(out, field{key: key, index: at, secret: f.Tag.Get("secret") == "yes", inFile: f.Tag.Get("secret") == "in file", live: live != "", first: live != "number", last: live == "yes", restricts: f.Tag.Get("restricts")})
	}
	return out
}

func find(in []field, key string) (field, bool) {
	for _, f := range in {
		if f.key == key {
			return f, true
		}
	}
	return field{}, false
}

// section reports whether the key is the beginning of other keys.
func section(key string) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return strings.HasPrefix(f.key, key+".") })
}

// Keys returns all keys, in the order of Config.
func Keys() []string { return keysOf(fields) }

// Secrets returns the keys of secret values, and the keys of secrets' files.
func Secrets() (values, files []string) {
	for _, f := range fields {
		of, _ := find(fields, strings.TrimSuffix(f.key, fileSuffix))
		switch {
		case f.secret:
			values = append(values, f.key)
		case f.inFile || of.secret:
			files = append(files, f.key)
		}
	}
	return values, files
}

func keysOf(in []field) []string {
	keys := make([]string, 0, len(in))
	for _, f := range in {
		keys = append(keys, f.key)
	}
	return keys
}

// nearest returns the candidate with the fewest edits, if few enough for a typing mistake.
func nearest(name string, candidates []string) string {
	best, distance := "", 1+max(2, len(name)/4)
	for _, c := range candidates {
		if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(c)); d < distance {
			best, distance = c, d
		}
	}
	return best
}
