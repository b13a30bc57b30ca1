package service

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/copies"
	"github.com/notyet/notyet/internal/kafka"
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

// checkStrangers refuses to start a scanner beside others that work on another copy of the
// database.
func (e *Engine) checkStrangers(client *kgo.Client) error {
	group := e.cfg.Scanner.Group
	return copies.Strangers{
		Group:  group,
		AtWork: func(ctx context.Context) ([]string, error) { return scanner.AtWork(ctx, client, group) },
		Signs: func(ctx context.Context) (out []copies.Sign, err error) {
			alive, err := look.New(e.store).Services(ctx)
			for _, v := range alive {
				if v.Kind != "dispatcher" && v.ID != e.alive.service.ID {
					out = append(out, copies.Sign{Seen: v.Seen, Started: v.Started})
				}
			}
			return out, err
		},
		Every: signsEvery,
	}.Check(e.ctx)
}
