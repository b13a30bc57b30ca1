package index

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Examined is Redis' own account.
type Examined struct {
	// Version and Policy (maxmemory-policy) are empty where the user may not ask (INFO).
	Version, Policy string
	// Ahead is the least lead of the server's clock over this machine's; Within is the round trip.
	Ahead, Within time.Duration
}

// Examine asks Redis for its own account, and tries the index's commands: adding an entry to an
// unused slot, removing the entry, and listening for wakes. The error names a missing right.
func (x *Index) Examine(ctx context.Context) (Examined, error) {
	var out Examined
	sent := time.Now()
	shown, err := x.rdb.Time(ctx).Result()
	if err != nil {
		return out, fmt.Errorf("asking redis for the time: %w", x.explain(err))
	}
	heard := time.Now()
	out.Ahead, out.Within = shown.Sub(heard), heard.Sub(sent)
	if info, err := x.rdb.Info(ctx, "everything").Result(); err == nil {
		out.Version, out.Policy = infoField(info, "redis_version"), infoField(info, "maxmemory_policy")
	}
	key := x.tag + "doctor}:due"
	if err := x.rdb.ZAdd(ctx, key, redis.Z{Score: 1, Member: 1}).Err(); err != nil {
		return out, fmt.Errorf("adding an entry to redis: %w", x.explain(err))
	}
	if err := x.rdb.ZRemRangeByScore(ctx, key, "-inf", "+inf").Err(); err != nil {
		return out, fmt.Errorf("removing an entry from redis: %w", x.explain(err))
	}
	sub := x.rdb.Subscribe(ctx, x.channel)
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(ctx); err != nil {
		return out, fmt.Errorf("listening to redis: %w", x.explain(err))
	}
	return out, nil
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Collector returns the metrics of the connections to Redis.
func (x *Index) Collector() prometheus.Collector { return &collector{x.rdb} }

type collector struct{ rdb redis.UniversalClient }

func poolDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("notyet_index_pool_"+name, help, nil, nil)
}

var (
	poolHits     = poolDesc("hits_total", "Calls to Redis that found a free connection.")
	poolMisses   = poolDesc("misses_total", "Calls to Redis that found none.")
	poolTimeouts = poolDesc("timeouts_total", "Calls to Redis that waited for a connection in vain.")
	poolStale    = poolDesc("stale_total", "Connections to Redis that were closed because they were unusable.")
	poolConns    = poolDesc("connections", "Connections to Redis.")
	poolIdle     = poolDesc("idle_connections", "Connections to Redis that nobody uses.")
)

// Describe is part of prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolHits, poolMisses, poolTimeouts, poolStale, poolConns, poolIdle} {
		to <- d
	}
}

// Collect is part of prometheus.Collector. No server is asked.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.rdb.PoolStats()
	for desc, n := range map[*prometheus.Desc]uint32{poolHits: s.Hits, poolMisses: s.Misses, poolTimeouts: s.Timeouts, poolStale: s.StaleConns} {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n))
	}
	for desc, n := range map[*prometheus.Desc]uint32{poolConns: s.TotalConns, poolIdle: s.IdleConns} {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n))
	}
}
