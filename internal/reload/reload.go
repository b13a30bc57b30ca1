// Package reload keeps values read from files, and reads changed files again. Paths and a reading
// function go in; the latest readable value comes out. Certificates and tokens can thus be replaced
// without a restart.
package reload

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// lookEvery limits how often the files are checked, for any number of callers.
const lookEvery = time.Second

// Value is the result of load for the files. Safe for concurrent use.
type Value[T any] struct {
	paths []string
	load  func() (T, error)
	fail  func(error)

	mu     sync.Mutex
	value  T
	stamp  stamp     // of the files when they were last loaded, or failed to load
	looked time.Time // when the files were last checked
	failed time.Time // since when the files cannot be used; zero: they can
}

// New loads the value for the first time. Within a second after a change of a file, the value is
// loaded again. A failure calls fail once for each change and keeps the previous value; the next
// try comes a second later.
func New[T any](load func() (T, error), fail func(error), paths ...string) (*Value[T], error) {
	v := &Value[T]{paths: paths, load: load, fail: fail, looked: time.Now()}
	v.stamp = v.sum() // before the load, so that a change in between is noticed later
	var err error
	v.value, err = load()
	return v, err
}

// Get returns the current value.
func (v *Value[T]) Get() T {
	value, _ := v.Age()
	return value
}

// Age returns the current value, and for how long the files have been unusable.
func (v *Value[T]) Age() (T, time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if now.Sub(v.looked) >= lookEvery {
		v.looked = now
		v.look(now)
	}
	if v.failed.IsZero() {
		return v.value, 0
	}
	return v.value, max(now.Sub(v.failed), 1) // never 0, which means usable
}

func (v *Value[T]) look(now time.Time) {
	stamp := v.sum()
	changed := stamp != v.stamp
	if !changed && v.failed.IsZero() {
		return
	}
	v.stamp = stamp
	value, err := v.load()
	switch {
	case err == nil:
		v.value, v.failed = value, time.Time{}
		return
	case v.failed.IsZero():
		v.failed = now
	}
	if changed {
		v.fail(err)
	}
}

type stamp [sha256.Size]byte

// sum looks at the content of the files. Their times say too little: where Kubernetes replaces a
// mounted secret, by a link to another directory, size and time can stay the same.
func (v *Value[T]) sum() (s stamp) {
	sum := sha256.New()
	for _, path := range v.paths {
		text, err := read(path, maxFile)
		fmt.Fprintf(sum, "%d %s %v;", len(text), text, err)
	}
	sum.Sum(s[:0])
	return s
}

const (
	maxFile = 4 << 20  // limits what is read if the path is wrong
	maxText = 64 << 10 // of a password, or of a token
)

// read returns the content of a regular file. Others, such as a pipe, give theirs only once.
func read(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	return begin(path, most)
}

func begin(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// ReadFile returns a file's content, up to most bytes: a wrong path may lead to a device.
func ReadFile(path string, most int64) ([]byte, error) {
	content, err := begin(path, most+1)
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return content, err
}

// ReadText returns the one text of a file, such as a password, without line feeds at the end. An
// empty file is an error: somebody is just writing it. Errors do not contain the content.
func ReadText(path string) (string, error) {
	content, err := read(path, maxText+1)
	text := strings.TrimRight(string(content), "\r\n")
	switch {
	case err != nil:
		if at, ok := errors.AsType[*os.PathError](err); ok {
			err = at.Err // the path may be the secret itself, by mistake
		}
		return "", fmt.Errorf("the file cannot be read: %w", err)
	case len(content) > maxText:
		return "", fmt.Errorf("the file is larger than %d bytes", maxText)
	case text == "":
		return "", errors.New("there is nothing in the file")
	case strings.ContainsAny(text, "\r\n\x00"):
		return "", errors.New("the file has more than one line, or a zero byte")
	}
	return text, nil
}
