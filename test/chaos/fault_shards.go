package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// Faults of moves between databases.

// besideAMove is what happens while targets move. The mover may die too.
var besideAMove = append([]struct {
	name    string
	doubles bool
	disturb disturbance
}{{"the mover is killed", false, nil}, {"all dispatchers are killed", true, func(b *breaker) (string, error) {
	for _, n := range b.of(dispatcherRole) {
		n.kill()
	}
	b.wait(b.randomSpan(0, 2*session))
	var errs []error
	for _, n := range b.of(dispatcherRole) {
		errs = append(errs, n.start())
	}
	return "all dispatchers were killed", errors.Join(errs...)
}}}, beside...)

// moved is how far the databases are with moves.
type moved struct {
	Rules []json.RawMessage `json:"rules"`
	Move  *json.RawMessage  `json:"move"`
}

func (b *breaker) moved() (m moved, err error) {
	cmd := exec.CommandContext(b.ctx, b.binary, "shards", "list", "--json")
	cmd.Env = append(b.env(), b.reach(b.Servers.addr)...)
	out, err := cmd.Output()
	if err != nil {
		return m, fmt.Errorf("listing the databases: %w", err)
	}
	return m, json.Unmarshal(out, &m)
}

// awaitMoves waits until no target moves.
func (b *breaker) awaitMoves() (m moved, err error) {
	if !b.waitUntil(slotsBound, func() bool { m, err = b.moved(); return err == nil && m.Move == nil }) {
		return m, errors.Join(err, errors.New("targets still move"))
	}
	return m, nil
}

// moveTargets has targets move to another database, and disturbs a process in the middle of it.
func moveTargets(b *breaker) error {
	if err := b.awaitSlots(); err != nil {
		return err
	}
	before, err := b.awaitMoves()
	if err != nil {
		return err
	}
	patterns := append(allTargets(), "chaos.*", "*")
	pattern, more := patterns[b.rng.IntN(len(patterns))], besideAMove[b.rng.IntN(len(besideAMove))]
	to := b.rng.IntN(len(b.databases))
	b.began(fmt.Sprintf("%s to database %d, %s", pattern, to, more.name))
	b.note.Doubles = more.doubles
	begin, did := time.Now(), ""
	ctx, kill := context.WithCancel(b.ctx)
	defer kill()
	ended := make(chan error, 1)
	go func() { ended <- b.mover(ctx, pattern, to) }()
	b.wait(b.randomSpan(0, 1500*time.Millisecond))
	if more.disturb == nil {
		kill()
		<-ended
		did = "the mover was killed"
		err = b.mover(b.ctx, pattern, to)
	} else {
		did, err = more.disturb(b)
		err = errors.Join(err, <-ended)
	}
	if err != nil {
		return err
	}
	took := time.Since(begin)
	after, err := b.awaitMoves()
	if err != nil {
		return err
	}
	b.evidence(true, "%s; %d rules after %d; begun after %v, and all had followed after %v", did, len(after.Rules), len(before.Rules), took.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
	return nil
}

// mover moves targets. A move that is refused for the moment is tried again.
func (b *breaker) mover(ctx context.Context, pattern string, to int) error {
	var err error
	b.waitUntil(patience, func() bool {
		_, err = b.command(ctx, b.binary, "shards", "move", pattern, strconv.Itoa(to))
		return err == nil || ctx.Err() != nil
	})
	if b.ctx.Err() == nil && ctx.Err() != nil {
		return nil
	}
	return err
}
