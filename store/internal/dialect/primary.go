package dialect

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrMultiPrimary: several servers accept writes at the same time. They do not certify shared
// locks, so the lock on a slot's row stops only writers on the same server. A task could slip
// behind its slot's owner and never be delivered.
var ErrMultiPrimary = errors.New("the database accepts writes on several servers at once, and notyet's row locks hold on one only")

func (MySQL) CheckPrimary(ctx context.Context, q Querier) error {
	rows, err := readVariables(ctx, q, "wsrep_on", "group_replication_single_primary_mode")
	if err != nil {
		return fmt.Errorf("asking the database how it replicates: %w", err)
	}
	for _, v := range rows {
		if err := singlePrimary(v.name, v.value); err != nil {
			return fmt.Errorf("checking the database: %w", err)
		}
	}
	return nil
}

func singlePrimary(variable, value string) error {
	on := strings.EqualFold(value, "ON") || value == "1"
	switch {
	case variable == "wsrep_on" && on:
		return fmt.Errorf("%w: wsrep_on is %s (Galera): use a server with replicas, or Group Replication in single-primary mode", ErrMultiPrimary, value)
	case variable == "group_replication_single_primary_mode" && !on:
		return fmt.Errorf("%w: group_replication_single_primary_mode is %s: set it to ON", ErrMultiPrimary, value)
	}
	return nil
}
