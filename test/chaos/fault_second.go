package chaos

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// joinSecond starts a scanner and a dispatcher of a second installation, with a database of its own, on the other servers of the first.
// Each must end with an error that says so, and the first must not notice.
func joinSecond(b *breaker) error {
	second := fmt.Sprintf("chaos_second_%d", b.note.N)
	if _, err := b.databases[0].ExecContext(b.ctx, "CREATE DATABASE "+second+" CHARACTER SET utf8mb4; GRANT ALL PRIVILEGES ON "+second+".* TO 'chaos'@'%'"); err != nil {
		return err
	}
	env := append(b.env(), b.reach(b.Servers.addr)...)
	env = append(env, "NOTYET_MYSQL_SHARDS=", "NOTYET_MYSQL_DSN="+strings.TrimSuffix(b.dsn(b.Servers.addr(mysqlServer)), database)+second, "NOTYET_DISPATCHER_MEMBER_ID="+second, "NOTYET_SENDLOG_DIR="+b.dir+"/"+second)
	run := func(command string) (string, error) {
		ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, b.binary, command)
		cmd.Env = append(env, "NOTYET_HTTP_ADDR=127.0.0.1:0")
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s of a second installation ran on", command)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return lines[len(lines)-1], err
	}
	if said, err := run("migrate"); err != nil {
		return fmt.Errorf("migrating a second installation: %w: %s", err, said)
	}
	b.began("a second installation")
	refused := true
	var all []string
	roles := []string{scannerRole, dispatcherRole}
	if !b.has(zookeeperServer) { // its dispatchers elect in its own database
		roles = roles[:1]
	}
	for _, role := range roles {
		said, err := run(role)
		refused = refused && err != nil && strings.Contains(said, "installation")
		all = append(all, fmt.Sprintf("%s: %v, %s", role, err, said))
	}
	b.evidence(refused, "%s", strings.Join(all, "; "))
	return nil
}
