package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

func flushRedis(b *breaker) error {
	before, err := b.Servers.redis(b.ctx, "DBSIZE")
	if err != nil {
		return err
	}
	b.began(redisServer)
	after, err := b.Servers.redis(b.ctx, "EVAL", "redis.call('FLUSHALL') return redis.call('DBSIZE')", "0")
	if err != nil {
		return err
	}
	b.evidence(before != "0" && after == "0", "%s keys before, %s after", before, after)
	return nil
}

func killRedis(b *breaker) error {
	b.began(redisServer)
	if err := b.Servers.Kill(redisServer); err != nil {
		return err
	}
	span := b.randomSpan(0, 6*time.Second)
	b.wait(span)
	b.evidence(b.Servers.refuses(redisServer), "the process was gone for %v and came back empty", span.Round(time.Millisecond))
	return b.Servers.Up(b.ctx, redisServer)
}

// staleRedis restores Redis to its state of some seconds ago, like a lagging replica that was
// promoted.
func staleRedis(b *breaker) error {
	if _, err := b.Servers.redis(b.ctx, "SAVE"); err != nil {
		return err
	}
	dump := filepath.Join(b.Servers.home(redisServer), "dump.rdb")
	defer func() { _ = os.Remove(dump) }() // a later start must not load it
	b.wait(b.randomSpan(2*time.Second, 6*time.Second))
	b.began(redisServer)
	if err := b.Servers.Kill(redisServer); err != nil {
		return err
	}
	if err := b.Servers.Up(b.ctx, redisServer); err != nil {
		return err
	}
	keys, err := b.Servers.redis(b.ctx, "DBSIZE")
	b.evidence(keys != "0", "it came back with %s keys of its past", keys)
	return err
}

// fillRedis leaves Redis no memory for new entries; it evicts nothing.
func fillRedis(b *breaker) error {
	if _, err := b.Servers.redis(b.ctx, "CONFIG", "RESETSTAT"); err != nil {
		return err
	}
	b.began(redisServer)
	if _, err := b.Servers.redis(b.ctx, "CONFIG", "SET", "maxmemory", "1"); err != nil {
		return err
	}
	span := b.randomSpan(2*time.Second, 8*time.Second)
	b.wait(span)
	stats, err := b.Servers.redis(b.ctx, "INFO", "errorstats")
	if err != nil {
		return err
	}
	refused := strings.Contains(stats, "errorstat_OOM")
	b.evidence(refused, "for %v; writes were refused: %v", span.Round(time.Millisecond), refused)
	_, err = b.Servers.redis(b.ctx, "CONFIG", "SET", "maxmemory", "0")
	return err
}
