package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

// copyEvery is the pause between two looks at the group's copy of the database.
const copyEvery = 2 * time.Second

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
		for warned := false; ctx.Err() == nil; loop.Rest(ctx, copyEvery) {
			err := s.compareCopies(ctx, client)
			if errors.Is(err, kafka.ErrOlderCopy) {
				return err
			}
			if err != nil && !warned && ctx.Err() == nil {
				warned = true
				s.log.Warn("whether another copy of the database has taken the place of this one is not known; the service goes on. Dispatchers need the right Describe on the scanners' group and topics", zap.String("group", s.cfg.Scanner.Group), zap.Error(err))
			}
		}
		return nil
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

// compareCopies returns kafka.ErrOlderCopy if the scanners' group names another copy of the
// database, and this one is not newer, or if the database has another name than at the start. The
// group is read first: names are written there first.
func (s *Service) compareCopies(ctx context.Context, client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, copyEvery)
	defer cancel()
	group, err := kafka.GroupClaim(ctx, client, s.cfg.Scanner.Group, s.cfg.ReadTopics()...)
	if err != nil {
		return err
	}
	return s.replaced(ctx, group)
}

// replaced is compareCopies for a known claim of the group.
func (s *Service) replaced(ctx context.Context, group kafka.Claim) error {
	ours := kafka.Claim{Installation: s.installation}
	name, err := admin.New(s.store).Copy(ctx)
	if err == nil {
		ours.Copy, err = kafka.ParseCopy(name)
	}
	if err != nil {
		return err
	}
	if err := group.Replaces(ours, s.cfg.Scanner.Group); err != nil || name == s.copy {
		return err
	}
	return fmt.Errorf("%w: this process began with copy %q, and mysql.dsn leads to copy %q now: start it again", kafka.ErrOlderCopy, s.copy, name)
}
