package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/test/chaos/history"
)

// buildCommit builds the program of a commit.
func buildCommit(ctx context.Context, root, commit, binary string) error {
	tree := binary + "-tree"
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", `git archive "$1" >"$2.tar" && tar -xf "$2.tar" -C "$2"`, "sh", commit, tree)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("taking the tree of %s: %w: %s", commit, err, out)
	}
	return build(ctx, tree, binary)
}

// The steps of an upgrade. None of them breaks anything, so none may cause a copy.
var (
	migrated            = fault{kind: "migrate-beside-older", hurt: migrateBesideOlder}
	scannersUpgraded    = fault{kind: "scanners-upgraded", hurt: upgrade(scannerRole)}
	dispatchersUpgraded = fault{kind: "dispatchers-upgraded", hurt: upgrade(dispatcherRole)}
	scannersTakenBack   = fault{kind: "scanners-taken-back", hurt: takeBack(scannerRole)}
	dispatchersBack     = fault{kind: "dispatchers-taken-back", hurt: takeBack(dispatcherRole)}
	slotsAdded          = fault{kind: "slots-added", hurt: addSlots}
)

// steps lead up and back down in both orders, then back to older programs from another number of slots, and end with this tree's.
var steps = []fault{
	migrated,
	scannersUpgraded, dispatchersUpgraded, scannersTakenBack, dispatchersBack,
	dispatchersUpgraded, scannersUpgraded, dispatchersBack, scannersTakenBack,
	dispatchersUpgraded, scannersUpgraded, slotsAdded, scannersTakenBack, dispatchersBack,
	scannersUpgraded, dispatchersUpgraded,
}

// rollAll takes the steps. After each of them one of the named faults hits the processes, in turn.
func (c *Cluster) rollAll(ctx, _ context.Context, cfg Config, kinds []fault, l *load, rec *history.Recorder) error {
	b := c.newBreaker(ctx, cfg, l, rec)
	for i, step := range steps {
		if err := b.breakOne(step); err != nil {
			return err
		}
		if len(cfg.Faults) == 0 {
			continue
		}
		if err := b.breakOne(kinds[i%len(kinds)]); err != nil {
			return err
		}
	}
	return nil
}

// migrateBesideOlder updates the tables while older programs work. Those of this tree do not start before. The older migrate may still be
// run, as a deployment does that is taken back.
func migrateBesideOlder(b *breaker) error {
	b.began("tables")
	for _, role := range []string{scannerRole, dispatcherRole} {
		if err := b.refused(b.binary, "run `notyet migrate`", role); err != nil {
			return err
		}
	}
	const versions = "SELECT COUNT(*) FROM " + database + ".goose_db_version"
	had := b.databases[0].count(b.ctx, versions)
	if _, err := b.command(b.ctx, b.binary, "migrate"); err != nil {
		return err
	}
	has := b.databases[0].count(b.ctx, versions)
	if _, err := b.command(b.ctx, b.before, "migrate"); err != nil {
		return err
	}
	left := b.databases[0].count(b.ctx, versions)
	b.evidence(has > had && left == has, "%d migrations were made beside older programs; the older migrate then made %d", has-had, left-has)
	return nil
}

// refused runs a command of a program, which must fail and say why.
func (b *breaker) refused(binary, why string, args ...string) error {
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	out, err := b.command(ctx, binary, args...)
	var exited *exec.ExitError
	if !errors.As(err, &exited) || exited.ExitCode() <= 0 || !strings.Contains(err.Error(), why) {
		return fmt.Errorf("notyet %s was not refused with %q: %w: %s", strings.Join(args, " "), why, err, out)
	}
	return nil
}

// upgrade lets a role's processes run the program of this tree, one after the other. The number of slots cannot be changed meanwhile.
func upgrade(role string) func(*breaker) error {
	return func(b *breaker) error {
		return b.roll(role, b.binary, func() error {
			return b.refused(b.binary, "services of an older version are alive", "slots", "set", strconv.Itoa(2*slotCount))
		})
	}
}

// takeBack lets them run the older program again. It does not start with a setting that it does not know.
func takeBack(role string) func(*breaker) error {
	return func(b *breaker) error {
		return b.roll(role, b.before, func() error { return b.refused(b.before, "is unknown", role, "--set", "no.such-setting=1") })
	}
}

// roll stops a role's processes gracefully, one after the other, and starts another program in the place of each, in the middle of a burst.
// When the first has started, both versions are at work.
func (b *breaker) roll(role, binary string, besides func() error) error {
	due := b.sendBurst()
	b.wait(time.Until(time.UnixMilli(due)) - b.randomSpan(0, 2*time.Second))
	b.began(role)
	begin, both := time.Now(), false
	for i, n := range b.of(role) {
		if err := n.stop(); err != nil {
			return err
		}
		n.binary = binary
		if err := n.start(); err != nil {
			return err
		}
		if !b.waitUntil(patience, func() bool { return n.ready(b.ctx) }) {
			return fmt.Errorf("%s is not ready after 30 s", n.name)
		}
		b.wait(b.randomSpan(0, 3*time.Second))
		if i > 0 {
			continue
		}
		both = b.waitUntil(patience, func() bool {
			return b.databases[0].count(b.ctx, "SELECT COUNT(DISTINCT version) FROM "+database+".services WHERE kind = ? AND seen > ?", role, time.Now().Add(-15*time.Second).UnixMilli()) == 2
		})
		if err := besides(); err != nil {
			return err
		}
	}
	b.evidence(both, "%d processes in %v, each with exit code 0; both versions worked side by side: %v", len(b.of(role)), time.Since(begin).Round(time.Millisecond), both)
	return nil
}

// addSlots changes the number of slots, which older programs count when they come back.
func addSlots(b *breaker) error {
	const more = slotCount + slotCount/2
	b.began("slots")
	begin := time.Now()
	_, err := b.command(b.ctx, b.binary, "slots", "set", strconv.Itoa(more), "--wait")
	b.evidence(b.databases[0].count(b.ctx, "SELECT COUNT(*) FROM "+database+".slots WHERE base = ?", more) == more, "%d slots after %v", more, time.Since(begin).Round(time.Millisecond))
	return err
}
