package scanner

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// standAfter is how long one batch may take before the scanner is not ready.
const standAfter = time.Minute

// standing holds the batches that are being stored, and open transactions that hold readers up. So
// operators see a partition that does not move.
type standing struct {
	mu      sync.Mutex
	batches map[partitionKey]tried
	open    map[partitionKey]tried
}

type tried struct {
	offset int64
	since  time.Time
	err    error
}

func (s *standing) begin(covered []coverage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.batches == nil {
		s.batches = map[partitionKey]tried{}
	}
	for _, c := range covered {
		s.batches[c.reading.key] = tried{offset: c.first, since: time.Now()}
	}
}

func (s *standing) failed(covered []coverage, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range covered {
		t := s.batches[c.reading.key]
		t.err = err
		s.batches[c.reading.key] = t
	}
}

func (s *standing) end(covered []coverage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range covered {
		delete(s.batches, c.reading.key)
	}
}

// blocked replaces the partitions with an open transaction. Records behind its start, at the
// offset, are not read. The unknown partitions, without Kafka's answer, stay as before.
func (s *standing) blocked(at map[partitionKey]int64, unknown []partitionKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := make(map[partitionKey]tried, len(at))
	for _, key := range unknown {
		if t, known := s.open[key]; known {
			open[key] = t
		}
	}
	for key, offset := range at {
		t, known := s.open[key]
		if !known || t.offset != offset {
			t = tried{offset: offset, since: time.Now(), err: errOpenTransaction}
		}
		open[key] = t
	}
	s.open = open
}

var errOpenTransaction = errors.New("a producer's transaction is open from this offset on: nothing behind it is read until the producer ends it, or Kafka does after transaction.timeout.ms")

// each calls f with each partition that has stood for standAfter, and for how long.
func (s *standing) each(f func(partitionKey, tried, time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, t := range s.open {
		if _, trying := s.batches[key]; trying {
			continue
		}
		if long := time.Since(t.since); long >= standAfter {
			f(key, t, long)
		}
	}
	for key, t := range s.batches {
		if long := time.Since(t.since); long >= standAfter {
			f(key, t, long)
		}
	}
}

// failing returns why the last attempt to store one of the batches has failed; nil: none has.
func (s *standing) failing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, t := range s.batches {
		if t.err != nil {
			return fmt.Errorf("storing %s/%d from offset %d on: %w", key.topic, key.partition, t.offset, t.err)
		}
	}
	return nil
}

// ready returns an error about one of the partitions with a standing batch; nil: there is none. An
// open transaction is a producer's, and no scanner could do better.
func (s *standing) ready() (err error) {
	s.each(func(key partitionKey, t tried, long time.Duration) {
		if errors.Is(t.err, errOpenTransaction) {
			return
		}
		err = fmt.Errorf("%s/%d stands at offset %d: its batch has been tried for %s, the last error: %w", key.topic, key.partition, t.offset, long.Round(time.Second), orTimeout(t.err))
	})
	return err
}

func orTimeout(err error) error {
	if err == nil {
		return errors.New("the database has not answered")
	}
	return err
}
