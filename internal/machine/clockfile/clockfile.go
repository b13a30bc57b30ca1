//go:build unix

// Package clockfile shares the clocks of a simulated machine: a test writes a file, and a program
// built with the tag faultpoints reads it. Both map the file into memory, so that a stopped process
// sees a change with its first look after it continues.
package clockfile

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Clocks are the errors of a machine's clocks. The zero value is a machine with right clocks.
type Clocks struct {
	Offset time.Duration // of the wall clock
	Slewed time.Duration // of the monotonic clock at Since
	PPM    int64         // and by how much it has gained since then
	Since  time.Time
	Slept  time.Duration // how long the monotonic clock stood, as in a suspended machine
}

// SlewedAt returns how far the monotonic clock is ahead.
func (c Clocks) SlewedAt(now time.Time) time.Duration {
	return c.Slewed + time.Duration(int64(now.Sub(c.Since)/time.Microsecond)*c.PPM/1000)
}

// content is a file's. version is odd while it is being changed.
type content struct {
	version                           atomic.Int64
	offset, slewed, ppm, since, slept atomic.Int64
}

// File is an open file.
type File struct{ content *content }

// Open opens or makes a file. It stays open until the process ends.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	size := int(unsafe.Sizeof(content{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	return &File{(*content)(unsafe.Pointer(unsafe.SliceData(memory)))}, nil
}

// Set changes the clocks. One process and one goroutine at a time may.
func (f *File) Set(c Clocks) {
	f.content.version.Add(1)
	f.content.offset.Store(int64(c.Offset))
	f.content.slewed.Store(int64(c.Slewed))
	f.content.ppm.Store(c.PPM)
	f.content.since.Store(c.Since.UnixNano())
	f.content.slept.Store(int64(c.Slept))
	f.content.version.Add(1)
}

// Get returns the clocks.
func (f *File) Get() Clocks {
	for {
		version := f.content.version.Load()
		c := Clocks{
			Offset: time.Duration(f.content.offset.Load()), Slewed: time.Duration(f.content.slewed.Load()), PPM: f.content.ppm.Load(),
			Since: time.Unix(0, f.content.since.Load()), Slept: time.Duration(f.content.slept.Load()),
		}
		if version%2 == 0 && f.content.version.Load() == version {
			return c
		}
	}
}
