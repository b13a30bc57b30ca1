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

// named is the name of this engine's copy of the database, for comparisons by a client.
func (e *Engine) named(client *kgo.Client) copies.Named {
	return copies.Named{Client: client, Group: e.cfg.Scanner.Group, Topics: e.cfg.ReadTopics(), Installation: e.installation, Began: e.copy, Now: admin.New(e.store).Copy, Log: e.log}
}

// watchCopies has the service end when a command has given another copy of the database a newer
// name.
func (e *Engine) watchCopies() {
	if slices.ContainsFunc(e.life.parts, func(p part) bool { return p.name == "copies" }) {
		return
	}
	e.life.add("copies", func(ctx context.Context) error {
		client, err := kafka.New(e.kafka, e.log)
		if err != nil {
			return err
		}
		defer client.Close()
		return e.named(client).Run(ctx)
	})
}

// strangersFor is how long scanners may be at work without a sign of life in the database. One that
// cannot write there tells the group so within 25 s.
const strangersFor = 30 * time.Second

// checkStrangers refuses to start beside scanners at work on another copy of the database, which
// would lose partitions to this one. Scanners that write to this copy have noted there twice that
// they live: one that waits here beside this one has done so once. Without an answer, the scanner
// starts.
func (e *Engine) checkStrangers(client *kgo.Client) error {
	group := e.cfg.Scanner.Group
	for began := time.Now(); e.ctx.Err() == nil; loop.Rest(e.ctx, time.Second) {
		ctx, cancel := context.WithTimeout(e.ctx, command.DialTimeout)
		scanners, err := scanner.AtWork(ctx, client, group)
		var alive []admin.Service
		if err == nil && len(scanners) > 0 {
			alive, err = look.New(e.store).Services(ctx)
		}
		cancel()
		known := slices.ContainsFunc(alive, func(v admin.Service) bool {
			apart := max(v.Seen-v.Started, v.Started-v.Seen) // the database's clock may have been set back
			return v.Kind != "dispatcher" && v.ID != e.alive.service.ID && apart >= admin.ServiceLease/3
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
