package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// slotNumbers are those to which the number of slots changes. The least leaves each dispatcher some.
var slotNumbers = []int{8, 12, slotCount, 24, 32}

// slotsBound limits a change of the number of slots, together with one that follows it.
const slotsBound = 3 * time.Minute

// beside is what happens to a process while the number of slots changes.
var beside = []struct {
	name    string
	doubles bool
	disturb disturbance
}{
	{"nothing", false, func(*breaker) (string, error) { return "nothing beside", nil }},
	{"a dispatcher is killed", true, killOne(dispatcherRole)},
	{"a dispatcher is paused", true, pauseOne(dispatcherRole)},
	{"a dispatcher is stopped", false, stopOne(dispatcherRole)},
	{"a scanner is killed", false, killOne(scannerRole)},
	{"the database is in a bad state", true, func(b *breaker) (string, error) {
		state, span := badStates[b.rng.IntN(len(badStates))], b.randomSpan(time.Second, 6*time.Second)
		server := b.any().proxied()
		if err := state.begin(b, server); err != nil {
			return "", err
		}
		b.wait(span)
		return fmt.Sprintf("the database was %s for %v", state.name, span.Round(time.Millisecond)), state.end(b, server)
	}},
}

// setSlots changes the number of slots, up or down, and disturbs a process in the middle of it. Every second time the change goes on
// when the fault is over, so the next fault meets it.
func setSlots(b *breaker) error {
	d := b.any()
	from := d.slotsTarget(b.ctx)
	others := slices.DeleteFunc(slices.Clone(slotNumbers), func(n int) bool { return n == from })
	to, more := others[b.rng.IntN(len(others))], beside[b.rng.IntN(len(beside))]
	b.began(fmt.Sprintf("%s: %d to %d slots, %s", d.server, from, to, more.name))
	b.note.Doubles = more.doubles
	begin := time.Now()
	if _, err := b.command(b.ctx, b.binary, append([]string{"slots", "set", strconv.Itoa(to)}, b.named(d)...)...); err != nil {
		return err
	}
	b.wait(b.randomSpan(0, time.Second))
	did, err := more.disturb(b)
	if err != nil {
		return err
	}
	if b.rng.IntN(2) == 0 {
		b.evidence(d.slotsTarget(b.ctx) == to, "%s; the change goes on", did)
		return nil
	}
	if err := b.awaitSlots(); err != nil {
		return err
	}
	b.evidence(d.slotsTarget(b.ctx) == to, "%s; all had moved after %v", did, time.Since(begin).Round(time.Millisecond))
	return nil
}

// named says in a command which database is meant.
func (b *breaker) named(d *store) []string {
	if len(b.databases) == 1 {
		return nil
	}
	return []string{"--shard", strconv.Itoa(d.number)}
}

// slotsTarget is the number of slots that is to be in the end.
func (d *store) slotsTarget(ctx context.Context) int {
	return int(d.count(ctx, "SELECT COALESCE((SELECT NULLIF(value, 0) FROM "+database+".meta WHERE name = 'slots.next'), (SELECT MAX(target) FROM "+database+".slots))"))
}

// slotsChanging is an expression for what is left to do until the number of slots is the one that was set last.
const slotsChanging = "(SELECT COUNT(*) FROM " + database + ".slots WHERE base <> target OR spread <> target) + (SELECT COUNT(*) FROM " + database + ".meta WHERE name = 'slots.next' AND value > 0)"

// awaitSlots waits until the number of slots does not change. What the database may forget of a change is a known gap, so a fault that
// sets the database back waits first.
func (b *breaker) awaitSlots() error {
	if !b.waitUntil(slotsBound, func() bool { return b.sum(b.ctx, "SELECT "+slotsChanging) == 0 }) {
		return errors.New("the number of slots still changes")
	}
	return nil
}
