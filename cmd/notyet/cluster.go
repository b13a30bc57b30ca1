package main

import (
	"fmt"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
)

type clusterCmd struct{ asking }

func (clusterCmd) Help() string {
	return whereFrom + `
Shows the services that are alive with their versions, how many slots each owns, and how far the intake is stored. A service
that died is gone within 15 s.

Examples:
  notyet cluster
  notyet cluster --json | jq '.slots[] | select(.alive | not)'`
}

func (c *clusterCmd) Run(a *app) error {
	return show(a, c.asking, func(b *backend) (api.Cluster, error) { return b.Cluster(a.Ctx) }, a.cluster)
}

func (a *app) cluster(found api.Cluster) {
	table(a, "no services are alive", []any{"KIND", "SERVICE", "VERSION", "HTTP", "STARTED", "SLOTS"}, found.Services, func(s api.Service) []any {
		return []any{s.Kind, command.Plain(s.ID), command.Plain(s.Version), command.Plain(s.HTTP), when(s.Started), s.Slots}
	})
	free := 0
	for _, s := range found.Slots {
		if !s.Alive {
			free++
		}
	}
	fmt.Fprintf(a.Stdout, "%d slots, %d without a living owner\n", len(found.Slots), free)
	if found.LagError != "" {
		fmt.Fprintf(a.Stdout, "lag is not known: %s\n", command.Plain(found.LagError))
		return
	}
	head := []any{"TOPIC", "PARTITION", "STATE", "LAG", ""}
	if len(found.Shards) > 0 {
		head = append([]any{"SHARD"}, head...)
	}
	table(a, "", head, found.Lag, func(l api.Lag) []any {
		row := []any{l.Topic, l.Partition, l.State, l.Lag, shortened(command.Plain(l.Detail), 80)}
		if len(found.Shards) > 0 {
			row = append([]any{l.Shard}, row...)
		}
		return row
	})
}
