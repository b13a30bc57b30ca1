package chaos

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func killDispatcher(b *breaker) error { return b.killOwner(b.one(dispatcherRole)) }

// killLeader kills the dispatcher that leads the election.
func killLeader(b *breaker) error {
	var leader *node
	var err error
	b.waitUntil(patience, func() bool { // a session may be between two connections
		leader, err = b.leader()
		return err == nil
	})
	if err != nil {
		return err
	}
	return b.killOwner(leader)
}

// killInBurst kills a dispatcher while many tasks are due.
func killInBurst(b *breaker) error {
	due := b.sendBurst()
	b.wait(time.Until(time.UnixMilli(due + b.rng.Int64N(1000))))
	return b.killOwner(b.one(dispatcherRole))
}

func onlyBurst(b *breaker) error {
	due := b.sendBurst()
	b.wait(time.Until(time.UnixMilli(due)))
	b.began(floodTopic)
	b.wait(5 * time.Second)
	b.evidence(true, "%d tasks due within 1 s", b.burst)
	return nil
}

// sendBurst requests a burst and returns when it begins: late enough for all of it to be stored, at
// 3000 a second.
func (b *breaker) sendBurst() int64 {
	due := time.Now().Add(5*time.Second + time.Duration(b.burst)*time.Second/3000).UnixMilli()
	b.load.burst(b.burst, due)
	return due
}

// killOwner kills a dispatcher and starts it again: either at once, when it finds its own state, or
// after others took over.
func (b *breaker) killOwner(n *node) error {
	had, epoch := b.owned(n.name)
	b.began(n.name)
	b.note.Killed = n.name
	n.kill()
	if b.rng.IntN(3) > 0 {
		b.waitUntil(session+6*time.Second, func() bool { left, _ := b.owned(n.name); return left == 0 })
	}
	if err := n.start(); err != nil {
		return err
	}
	moved := b.waitUntil(patience, func() bool { _, now := b.owned(n.name); return now > epoch })
	b.evidence(had > 0 && moved, "it owned %d slots, which were taken under a higher epoch: %v", had, moved)
	return nil
}

func killScanner(b *breaker) error {
	n := b.one(scannerRole)
	members := 0
	b.waitUntil(patience, func() bool { members = b.members(); return members == len(b.of(scannerRole)) })
	b.began(n.name)
	n.kill()
	gone := b.waitUntil(patience, func() bool { return b.members() < members })
	b.wait(b.randomSpan(0, 2*time.Second))
	b.evidence(gone, "the group was left with fewer members: %v", gone)
	return n.start()
}

// members returns the size of the scanners' group.
func (b *breaker) members() int {
	groups, err := b.admin.DescribeGroups(b.ctx, groupName)
	if err != nil {
		return -1
	}
	return len(groups[groupName].Members)
}

// pauseDispatcher pauses a dispatcher for half a session to several, like a host that is migrated
// or swaps.
func pauseDispatcher(b *breaker) error {
	n := b.one(dispatcherRole)
	span := b.randomSpan(session/2, 2*session)
	if b.rng.IntN(5) == 0 {
		span = b.randomSpan(2*session, 10*session)
	}
	return b.pause(n, span)
}

func pauseScanner(b *breaker) error {
	return b.pause(b.one(scannerRole), b.randomSpan(2*time.Second, 10*time.Second))
}

func (b *breaker) pause(n *node, span time.Duration) error {
	had, epoch := b.owned(n.name)
	b.began(n.name)
	if err := n.signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pausing %s: %w", n.name, err)
	}
	b.wait(span)
	state, err := processState(n.pid())
	if err != nil {
		return err
	}
	_, after := b.owned(n.name)
	if err := n.signal(syscall.SIGCONT); err != nil {
		return err
	}
	b.evidence(state == 'T', "stopped for %v, it owned %d slots, taken over: %v", span.Round(time.Millisecond), had, after > epoch)
	return nil
}

// rollingRestart stops and starts every process gracefully. It breaks nothing, so it must cause no
// copy.
func rollingRestart(b *breaker) error {
	b.began("all")
	begin := time.Now()
	for _, n := range b.nodes {
		if err := n.stop(); err != nil {
			return err
		}
		if err := n.start(); err != nil {
			return err
		}
		b.waitUntil(patience, func() bool { return n.ready(b.ctx) })
	}
	b.evidence(true, "%d processes in %v, each with exit code 0", len(b.nodes), time.Since(begin).Round(time.Millisecond))
	return nil
}

// dispatchersAway makes tasks due while no dispatcher runs.
func dispatchersAway(b *breaker) error {
	return b.away(dispatcherRole, b.randomSpan(5*time.Second, 15*time.Second))
}

// scannersAway leaves requests in the intake.
func scannersAway(b *breaker) error {
	return b.away(scannerRole, b.randomSpan(5*time.Second, 15*time.Second))
}

// away kills all processes of a role, and starts them again later.
func (b *breaker) away(role string, span time.Duration) error {
	before := b.load.acked.Load()
	b.began("all " + role + "s")
	for _, n := range b.of(role) {
		n.kill()
	}
	b.wait(span)
	missed := b.load.acked.Load() - before
	b.evidence(missed > 0, "away for %v, in which %d requests came", span.Round(time.Millisecond), missed)
	for _, n := range b.of(role) {
		if err := n.start(); err != nil {
			return err
		}
	}
	return nil
}

// suspendDispatcher suspends a dispatcher's machine: the process stands, and so does its monotonic clock.
func suspendDispatcher(b *breaker) error {
	n := b.one(dispatcherRole)
	span := b.randomSpan(session/2, 4*session)
	had, epoch := b.owned(n.name)
	b.began(n.name)
	if err := n.signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("suspending %s: %w", n.name, err)
	}
	begin := time.Now()
	b.wait(span)
	state, err := processState(n.pid())
	if err != nil {
		return err
	}
	_, after := b.owned(n.name)
	c := n.clocks.Get()
	c.Slept += time.Since(begin)
	n.clocks.Set(c)
	if err := n.signal(syscall.SIGCONT); err != nil {
		return err
	}
	b.evidence(state == 'T', "suspended for %v, it owned %d slots, taken over: %v", span.Round(time.Millisecond), had, after > epoch)
	return nil
}

// label is what the metrics of the first database carry where there are several.
func (b *breaker) label() string {
	if len(b.databases) == 1 {
		return ""
	}
	return `{shard="0"}`
}

// stepClock steps the wall clock of a dispatcher's machine, and slews its monotonic clock otherwise from now on.
func stepClock(b *breaker) error {
	n := b.one(dispatcherRole)
	before, next := n.clocks.Get(), b.clocks()
	next.Slewed, next.Slept = before.SlewedAt(next.Since), before.Slept
	b.began(n.name)
	n.clocks.Set(next)
	var seen float64
	noticed := b.waitUntil(patience, func() bool {
		var err error
		seen, err = n.metric("notyet_dispatcher_clock_offset_seconds" + b.label())
		return err == nil && math.Abs(seen+next.Offset.Seconds()) < 1
	})
	b.wait(b.randomSpan(2*time.Second, 6*time.Second))
	b.evidence(noticed, "by %v, to %s; the process said that the database is ahead by %.3f s", (next.Offset - before.Offset).Round(time.Second), n.machine(), seen)
	return nil
}

// rebalance lets one more scanner join the group and leave it again.
func rebalance(b *breaker) error {
	n, err := b.newNode("scanner-extra", scannerRole)
	if err != nil {
		return err
	}
	defer n.close()
	members := b.members()
	b.began(n.name)
	if err := n.start(); err != nil {
		return err
	}
	joined := b.waitUntil(patience, func() bool { return b.members() > members })
	b.wait(b.randomSpan(time.Second, 3*time.Second))
	if b.rng.IntN(2) == 0 {
		n.kill()
	} else if err := n.stop(); err != nil {
		return err
	}
	left := b.waitUntil(patience, func() bool { return b.members() <= members })
	b.evidence(joined && left, "the group grew: %v, and shrank again: %v", joined, left)
	return nil
}

// candidate matches a line of ZooKeeper's dump; the oldest candidate leads. client matches a line
// of its cons.
var (
	candidate = regexp.MustCompile(`members/_c_[0-9a-f]+-m-(\d+)`)
	client    = regexp.MustCompile(`/127\.0\.0\.1:(\d+)\[.*sid=(0x[0-9a-f]+)`)
)

// leader returns the dispatcher that leads the election.
func (b *breaker) leader() (*node, error) {
	if b.has(zookeeperServer) {
		return b.ensembleLeader()
	}
	var id string
	if err := b.databases[0].QueryRowContext(b.ctx, "SELECT id FROM "+database+".members ORDER BY seq LIMIT 1").Scan(&id); err != nil {
		return nil, fmt.Errorf("asking who leads: %w", err)
	}
	for _, n := range b.of(dispatcherRole) {
		if n.name == id {
			return n, nil
		}
	}
	return nil, fmt.Errorf("nobody leads: the oldest candidate is %q", id)
}

// ensembleLeader asks ZooKeeper which session owns the oldest candidate, and finds the proxy of that
// session's connection.
func (b *breaker) ensembleLeader() (*node, error) {
	dump, err := b.Servers.zookeeper("dump")
	if err != nil {
		return nil, fmt.Errorf("asking who leads: %w", err)
	}
	var current, session, oldest string
	for _, line := range strings.Split(dump, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "0x") {
			current = strings.TrimSuffix(line, ":")
		}
		if m := candidate.FindStringSubmatch(line); m != nil && (oldest == "" || m[1] < oldest) {
			oldest, session = m[1], current
		}
	}
	cons, err := b.Servers.zookeeper("cons")
	if err != nil {
		return nil, fmt.Errorf("asking who leads: %w", err)
	}
	for _, m := range client.FindAllStringSubmatch(cons, -1) {
		if m[2] != session {
			continue
		}
		for _, n := range b.of(dispatcherRole) {
			if n.proxies[zookeeperServer].Owns(m[1]) {
				return n, nil
			}
		}
	}
	return nil, fmt.Errorf("nobody leads: session %q of candidate %q has no connection", session, oldest)
}
