package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/notyet/notyet/test/chaos/history"
)

func killMySQL(b *breaker) error {
	killed := b.any().server
	b.began(killed)
	if err := b.Servers.Kill(killed); err != nil {
		return err
	}
	begin := time.Now()
	b.wait(b.randomSpan(0, 4*time.Second))
	refused := b.Servers.refuses(killed)
	err := b.Servers.Up(b.ctx, killed)
	b.evidence(refused, "the process was gone for %v", time.Since(begin).Round(time.Millisecond))
	return err
}

// freezeMySQL makes the server read-only, like one that was demoted.
func freezeMySQL(b *breaker) error {
	d := b.any()
	b.began(d.server)
	if _, err := d.ExecContext(b.ctx, "SET GLOBAL read_only = 1"); err != nil {
		return err
	}
	from, before := d.stored(b.ctx), b.load.acked.Load()
	span := b.randomSpan(2*time.Second, 8*time.Second)
	b.wait(span)
	moved, came := d.stored(b.ctx)-from, b.load.acked.Load()-before
	b.evidence(moved == 0 && came > 0, "for %v; %d requests came and %d were stored", span.Round(time.Millisecond), came, moved)
	_, err := d.ExecContext(b.ctx, "SET GLOBAL read_only = 0")
	return err
}

// slowMySQL delays all queries and answers of the database.
func slowMySQL(b *breaker) error {
	delay, d := b.randomSpan(20*time.Millisecond, 250*time.Millisecond), b.any()
	b.began(d.server)
	hit := int64(0)
	for _, n := range b.nodes {
		n.proxies[d.proxied()].Affected()
		n.proxies[d.proxied()].Delay(delay)
	}
	b.wait(b.randomSpan(3*time.Second, 8*time.Second))
	for _, n := range b.nodes {
		n.proxies[d.proxied()].Heal()
		hit += n.proxies[d.proxied()].Affected()
	}
	b.evidence(hit > 0, "each packet held up by %v each way; %d bytes hit", delay.Round(time.Millisecond), hit)
	return nil
}

// lockMySQL holds locks that everybody needs, several times. It causes deadlocks by locking slots
// in the opposite order.
func lockMySQL(b *breaker) error {
	d := b.any()
	waits := func() int64 {
		return d.count(b.ctx, "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_ROW_LOCK_WAITS'")
	}
	before := waits()
	b.began(d.server)
	for end := time.Now().Add(b.randomSpan(3*time.Second, 8*time.Second)); time.Now().Before(end) && b.ctx.Err() == nil; {
		if err := b.contend(d); err != nil {
			b.log.Debug("a lock of ours was broken: " + err.Error())
		}
	}
	after := waits()
	b.evidence(after > before, "%d waits for row locks", after-before)
	return nil
}

func (b *breaker) contend(d *store) error {
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for slot := d.count(ctx, "SELECT MAX(slot) FROM "+database+".slots"); slot >= 0; slot-- {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("SELECT claimed FROM %s.slots WHERE slot = %d FOR UPDATE", database, slot)); err != nil {
			return err
		}
	}
	b.wait(b.randomSpan(50*time.Millisecond, 800*time.Millisecond))
	return nil
}

// restoreMySQL restores a copy of the database that is some seconds old, and follows the documented
// procedure: stop everything, restore, reconcile with the send logs and topics, start everything
// again.
func restoreMySQL(b *breaker) error {
	d := b.any()
	data, backup := b.Servers.home(d.server)+"/data", filepath.Join(b.dir, "backup")
	if err := b.awaitSlots(); err != nil {
		return err
	}
	b.began(d.server)
	lost := b.losing()
	if err := b.Servers.Down(b.ctx, d.server); err != nil {
		return err
	}
	if err := replace(data, backup); err != nil {
		return err
	}
	lost.Kept = time.Now().UnixMilli()
	if err := b.Servers.Up(b.ctx, d.server); err != nil {
		return err
	}
	from := d.stored(b.ctx)
	grown := b.waitUntil(patience, func() bool { return d.stored(b.ctx) > from })
	b.wait(b.randomSpan(2*time.Second, 6*time.Second))
	gone, what, err := b.goBack(d, lost, backup)
	b.evidence(grown && gone > 0, "%s", what)
	return err
}

// stored returns how many requests and reports the database has.
func (d *store) stored(ctx context.Context) int64 {
	return d.count(ctx, "SELECT SUM(next_offset) FROM "+database+".sources")
}

// proxied is the name by which processes have a proxy in front of it.
func (d *store) proxied() string {
	if d.number == 0 {
		return mysqlServer
	}
	return d.server
}

// losing begins a set-back: what is committed from now on may be lost.
func (b *breaker) losing() *history.Setback { return &history.Setback{From: time.Now().UnixMilli()} }

// lose ends it, when the database is back.
func (b *breaker) lose(s *history.Setback) {
	s.Back = time.Now().UnixMilli()
	b.note.Setbacks = append(b.note.Setbacks, *s)
}

// goBack kills all processes and a database, restores its backup and reconciles. It returns how many stored records were gone.
func (b *breaker) goBack(d *store, s *history.Setback, backup string) (lost int64, what string, err error) {
	lost = d.stored(b.ctx)
	for _, n := range b.nodes {
		n.kill()
	}
	s.Gone = time.Now().UnixMilli()
	if err := b.Servers.Kill(d.server); err != nil {
		return 0, "", err
	}
	begin := time.Now()
	if err := replace(backup, b.Servers.home(d.server)+"/data"); err != nil {
		return 0, "", err
	}
	if err := b.Servers.Up(b.ctx, d.server); err != nil {
		return 0, "", err
	}
	b.lose(s)
	lost -= d.stored(b.ctx)
	restored := time.Now()
	out, err := b.reconcile(d)
	what = fmt.Sprintf("%d stored requests and reports were gone; restored in %v, reconciled in %v: %s", lost, restored.Sub(begin).Round(time.Millisecond), time.Since(restored).Round(time.Millisecond), out)
	if err != nil {
		return lost, what, err
	}
	for _, n := range b.nodes {
		if err := n.start(); err != nil {
			return lost, what, err
		}
	}
	return lost, what, nil
}

// drillBackup makes a backup while all work, loses the database in the middle of a burst of which some is in the backup, and follows the
// documented procedure.
func drillBackup(b *breaker) error {
	if err := b.awaitSlots(); err != nil {
		return err
	}
	due := time.Now().Add(20 * time.Second)
	b.load.burst(b.burst, due.UnixMilli())
	b.wait(8 * time.Second)
	d := b.any()
	b.began(d.server)
	backup := filepath.Join(b.dir, "hot-backup")
	begin, before, copied := time.Now(), b.load.acked.Load(), b.losing()
	if err := b.hotCopy(d, backup); err != nil {
		return err
	}
	copied.Kept = time.Now().UnixMilli()
	took, beside := time.Since(begin), b.load.acked.Load()-before
	b.wait(time.Until(due.Add(b.randomSpan(0, time.Second))))
	lost, what, err := b.goBack(d, copied, backup)
	if err != nil {
		return err
	}
	started := time.Now()
	err = b.AwaitReady(b.ctx, time.Minute)
	b.evidence(beside > 0 && lost > 0, "backup in %v, while %d requests came; %s; at work again after %v", took.Round(time.Millisecond), beside, what, time.Since(started).Round(time.Millisecond))
	return err
}

// hotCopy copies the database's files as of the end of the copy.
func (b *breaker) hotCopy(d *store, to string) error {
	for _, args := range [][]string{
		{"--backup", "--host=127.0.0.1", fmt.Sprintf("--port=%d", b.Servers.port(d.server)), "--user=root"}, {"--prepare"},
	} {
		cmd := exec.CommandContext(b.ctx, "mariadb-backup", append(append([]string{"--no-defaults"}, args...), "--target-dir="+to)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("mariadb-backup %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

// forgetMySQL kills a server that writes its log once a second, and starts it again without its last commits, while everybody runs
// on. So does a failover to a replica that was behind. It tries again if nothing was lost by chance.
func forgetMySQL(b *breaker) error {
	if err := b.awaitSlots(); err != nil {
		return err
	}
	d := b.any()
	b.began(d.server)
	var lost int64
	tries := 0
	for ; tries < 5 && lost <= 0; tries++ {
		setback := b.losing()
		// The server that starts again is durable, as its settings say.
		if _, err := d.ExecContext(b.ctx, "SET GLOBAL innodb_flush_log_at_trx_commit = 0"); err != nil {
			return err
		}
		b.wait(b.randomSpan(2*time.Second, 4*time.Second))
		// Something has just been stored, which the log of a second ago does not have.
		before, then := int64(0), d.stored(b.ctx)
		b.waitUntil(patience, func() bool { before = d.stored(b.ctx); return before > then })
		setback.Gone = time.Now().UnixMilli()
		if err := b.Servers.Kill(d.server); err != nil {
			return err
		}
		setback.Kept = time.Now().UnixMilli()
		// Nobody may store anything before it is counted what is gone.
		for _, n := range b.nodes {
			n.proxies[d.proxied()].Cut()
		}
		err := b.Servers.Up(b.ctx, d.server)
		if err == nil {
			b.waitUntil(patience, func() bool { return d.stored(b.ctx) >= 0 })
			b.lose(setback)
			lost = before - d.stored(b.ctx)
		}
		for _, n := range b.nodes {
			n.proxies[d.proxied()].Heal()
		}
		if err != nil {
			return err
		}
	}
	b.evidence(lost > 0, "%d stored requests and reports were gone at try %d, and everybody ran on", lost, tries)
	return nil
}

// replace makes to a copy of the folder from.
func replace(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}

// reconcile settles what is known to have been sent from a database. The command refuses to run until the killed
// dispatchers' sessions have expired.
func (b *breaker) reconcile(d *store) (string, error) {
	args := append([]string{"deadletter", "reconcile", "--topics", "--json"}, b.named(d)...)
	dir := ""
	for _, n := range b.of(dispatcherRole) {
		args = append(args, "--send-log", n.sendlogOf(d))
		dir = filepath.Dir(n.sendlog()) + string(filepath.Separator)
	}
	var out []byte
	var err error
	for range 10 {
		var said bytes.Buffer
		cmd := exec.CommandContext(b.ctx, b.binary, args...)
		cmd.Env = append(b.env(), b.reach(b.Servers.addr)...)
		cmd.Stderr = &said
		if out, err = cmd.Output(); err == nil {
			return strings.ReplaceAll(strings.Join(strings.Fields(string(out)), " "), dir, ""), nil
		}
		err = fmt.Errorf("reconciling: %w: %s", err, said.String())
		b.wait(2 * time.Second)
	}
	return "", err
}
