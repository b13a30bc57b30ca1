package index

import (
	"context"
	"fmt"
	"strings"
	"time"

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
