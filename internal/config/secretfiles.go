package config

import (
	"reflect"
	"strings"

	"github.com/notyet/notyet/internal/reload"
)

// fileSuffix ends the key of a file with the value of another key.
const fileSuffix = "-file"

// secretFiles sets the keys with values in files. Each value then comes from the file.
func (l *loader) secretFiles(cfg *Config) {
	value := func(f field) reflect.Value { return reflect.ValueOf(cfg).Elem().FieldByIndex(f.index) }
	for _, f := range fields {
		name, isFile := strings.CutSuffix(f.key, fileSuffix)
		if !isFile || value(f).String() == "" {
			continue
		}
		of, known := find(fields, name)
		if known && l.origin[name].Kind != "" {
			l.unread[f.key] = true
			l.bad(name, "", "and "+f.key+" exclude each other", "remove one")
			continue
		}
		text, err := reload.ReadText(value(f).String())
		switch {
		case err != nil: // what is set may be the secret itself, by mistake
			l.unread[f.key] = true
			l.add(Problem{Key: f.key, Source: l.origin[f.key].String(), Problem: "cannot be used: " + err.Error(), Fix: "name a file that holds nothing but the secret, and that notyet may read"})
		case known:
			value(of).SetString(text)
			l.origin[name] = Origin{FromFile, value(f).String()}
		}
	}
}
