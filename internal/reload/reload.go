// Package reload keeps what was read from files, and reads the files again when they change. Paths
// and a function that reads them go in; the latest value that could be read comes out.
// Certificates and tokens can thus be replaced without a restart.
package reload

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// lookEvery limits how often the files are checked, whatever the number of callers.
const lookEvery = time.Second

// Value is what load returned for the files. It is safe for concurrent use.
type Value[T any] struct {
	paths []string
	load  func() (T, error)
	fail  func(error)

	mu     sync.Mutex
	value  T
	stamp  string    // of the files when they were last loaded, or failed to load
	looked time.Time // when the files were last checked
	failed time.Time // since when the files cannot be used; zero: they can
}

// New loads the value for the first time. It loads it again within a second after a file has
// changed. If that fails, it calls fail once for each change, keeps the previous value and tries
// again every second.
func New[T any](load func() (T, error), fail func(error), paths ...string) (*Value[T], error) {
	v := &Value[T]{paths: paths, load: load, fail: fail, looked: time.Now()}
	v.stamp = v.stat() // before the load, so that a change in between is noticed later
	var err error
	v.value, err = load()
	return v, err
}

// Get returns the current value.
func (v *Value[T]) Get() T {
	value, _ := v.Age()
	return value
}

// Age returns the current value, and for how long its files have not been usable. 0: they are.
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
	stamp := v.stat()
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

// stat follows links: Kubernetes replaces a mounted secret by a link to another directory.
func (v *Value[T]) stat() string {
	stamp := ""
	for _, path := range v.paths {
		info, err := os.Stat(path)
		if err != nil {
			stamp += err.Error()
			continue
		}
		stamp += fmt.Sprintf("%d/%d;", info.ModTime().UnixNano(), info.Size())
	}
	return stamp
}
