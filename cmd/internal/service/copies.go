package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/copies"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

// named is the name of this process's copy of the database, for comparisons by a client.
func (s *Service) named(client *kgo.Client) copies.Named {
	return copies.Named{Client: client, Group: s.cfg.Scanner.Group, Topics: s.cfg.ReadTopics(), Installation: s.installation, Began: s.copy, Now: admin.New(s.store).Copy, Log: s.log}
}

// watchCopies has the service end when a command has given another copy of the database a newer
// name.
func (s *Service) watchCopies() {
	if slices.ContainsFunc(s.life.parts, func(p part) bool { return p.name == "copies" }) {
		return
	}
	s.life.add("copies", func(ctx context.Context) error {
		client, err := kafka.New(s.kafka, s.log)
		if err != nil {
			return err
		}
		defer client.Close()
		return s.named(client).Run(ctx)
	})
}

// strangersFor is how long scanners may be at work without a sign of life in the database. One that
// cannot write there tells the group so within 25 s.
const strangersFor = 30 * time.Second

// checkStrangers refuses to start beside scanners at work on another copy of the database, which
// would lose partitions to this one. Scanners that write to this copy have noted there twice that
// they live: one that waits here beside this one has done so once. Without an answer, the scanner
// starts.
func (s *Service) checkStrangers(client *kgo.Client) error {
	group := s.cfg.Scanner.Group
	for began := time.Now(); s.ctx.Err() == nil; loop.Rest(s.ctx, time.Second) {
		ctx, cancel := context.WithTimeout(s.ctx, command.DialTimeout)
		scanners, err := scanner.AtWork(ctx, client, group)
		var alive []admin.Service
		if err == nil && len(scanners) > 0 {
			alive, err = look.New(s.store).Services(ctx)
		}
		cancel()
		known := slices.ContainsFunc(alive, func(v admin.Service) bool {
			apart := max(v.Seen-v.Started, v.Started-v.Seen) // the database's clock may have been set back
			return v.Kind != "dispatcher" && v.ID != s.alive.service.ID && apart >= admin.ServiceLease/3
		})
		if err != nil || len(scanners) == 0 || known {
			return nil
		}
		if time.Since(began) >= strangersFor {
			return fmt.Errorf("scanners of the consumer group %s work on another copy of this database, or `reconcile` is at work: %s have not written to the database of mysql.dsn for %v. Correct mysql.dsn, or stop them; see docs/recovery.md", group, strings.Join(scanners, ", "), strangersFor)
		}
	}
	return nil
}
