package index

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/internal/wrap"
)

// Entry is one task of the near future.
type Entry = slots.Place

// SlotPos is a position in a slot's order.
type SlotPos = slots.Pos

// TimersChanged is the Pos of a wake about timers.
const TimersChanged = slots.TimersChanged

// Index is safe for concurrent use.
type Index struct {
	rdb     redis.UniversalClient
	log     *zap.Logger
	tag     string // "{prefix:installation:", without the closing brace
	channel string
	secured bool // with TLS
}

// New checks cfg and returns an Index, not yet connected: Redis may become available later.
func New(cfg Config, log *zap.Logger) (*Index, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configuring the index: %w", err)
	}
	adaptLog(log)
	return &Index{
		rdb:     newClient(cfg),
		log:     log,
		tag:     "{" + cfg.namespace(),
		channel: cfg.namespace() + "wake",
		secured: cfg.TLS != nil,
	}, nil
}

// newClient limits the cost of a dead server (one retry, one dial per try) and obeys the caller's
// context. Neither is the library's default.
func newClient(cfg Config) redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs: cfg.Addrs, DB: cfg.DB, MasterName: cfg.MasterName, Dialer: cfg.dialer(),
		ContextTimeoutEnabled: true,
		MaxRetries:            1,
		// A slot on the move between two nodes answers MOVED and then ASK.
		MaxRedirects:  3,
		DialTimeout:   cfg.DialTimeout,
		DialerRetries: 1,
		ReadTimeout:   cfg.Timeout,
		WriteTimeout:  cfg.Timeout,
		// Open-source servers do not know the notifications' command.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if cfg.Credentials != nil {
		o.CredentialsProviderContext = func(context.Context) (string, string, error) {
			user, password := cfg.Credentials()
			return user, password, nil
		}
	}
	if cfg.SentinelCredentials != nil {
		o.OnConnect = cfg.signInToSentinel
	}
	switch {
	case cfg.Cluster:
		return redis.NewClusterClient(o.Cluster())
	case cfg.MasterName != "":
		return redis.NewFailoverClient(o.Failover())
	default:
		return redis.NewClient(o.Simple())
	}
}

// dialer returns nil for the library's own.
func (c Config) dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	if c.TLS == nil || c.Dial != nil {
		return c.Dial
	}
	plain := &net.Dialer{Timeout: c.DialTimeout}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&tls.Dialer{NetDialer: plain, Config: c.TLS()}).DialContext(ctx, network, address)
	}
}

// signInToSentinel authenticates to a server that has let nobody in yet: a sentinel. To the master,
// Credentials have. The library offers no better place: its credentials for sentinels can never
// change.
func (c Config) signInToSentinel(ctx context.Context, conn *redis.Conn) error {
	if err := conn.Ping(ctx).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		return err
	}
	user, password := c.SentinelCredentials()
	if user == "" {
		return conn.Auth(ctx, password).Err()
	}
	return conn.AuthACL(ctx, user, password).Err()
}

// Close closes the connections. The channels of Wakes close with their contexts.
func (x *Index) Close() {
	if err := x.rdb.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		x.log.Warn("closing redis failed", zap.Error(err))
	}
}

// Ping returns an error if Redis does not answer.
func (x *Index) Ping(ctx context.Context) error {
	if err := x.rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("pinging redis: %w", x.explain(err))
	}
	return nil
}

// Next returns, for each of the slots, the lowest position above its Pos. Slots without one are
// left out. The order is that of the argument.
func (x *Index) Next(ctx context.Context, from []SlotPos) ([]SlotPos, error) {
	var next []SlotPos
	for part := range chunks(from) {
		cmds := make([]*redis.ZSliceCmd, len(part))
		_, err := x.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, s := range part {
				cmds[i] = p.ZRangeByScoreWithScores(ctx, x.dueKey(s.Slot), &redis.ZRangeBy{
					Min: above(s.Pos), Max: "+inf", Count: 1,
				})
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading the next positions of %d slots: %w", len(from), err)
		}
		for i, cmd := range cmds {
			if z := cmd.Val(); len(z) > 0 {
				next = append(next, SlotPos{Slot: part[i].Slot, Pos: int64(z[0].Score)})
			}
		}
	}
	return next, nil
}

// Count returns how many entries the slot has in (from, to].
func (x *Index) Count(ctx context.Context, slot int, from, to int64) (int64, error) {
	n, err := x.rdb.ZCount(ctx, x.dueKey(slot), above(from), strconv.FormatInt(to, 10)).Result()
	return n, wrap.Err(err, "counting entries of slot %d", slot)
}

// Range returns the slot's entries in (from, to], by position, then seq.
func (x *Index) Range(ctx context.Context, slot int, from, to int64) ([]Entry, error) {
	found, err := x.rdb.ZRangeByScoreWithScores(ctx, x.dueKey(slot), &redis.ZRangeBy{Min: above(from), Max: strconv.FormatInt(to, 10)}).Result()
	if err != nil {
		return nil, fmt.Errorf("reading entries of slot %d: %w", slot, err)
	}
	out := make([]Entry, len(found))
	for i, z := range found {
		seq, err := strconv.ParseInt(z.Member.(string), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading entries of slot %d: %w", slot, err)
		}
		out[i] = Entry{Slot: slot, Pos: int64(z.Score), Seq: seq}
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Pos, b.Pos), cmp.Compare(a.Seq, b.Seq)) }) // Redis orders seqs as text
	return out, nil
}

// Counts returns how many entries the slots have in total between neighbouring bounds: in
// (bounds[i], bounds[i+1]].
func (x *Index) Counts(ctx context.Context, slots []int, bounds []int64) ([]int64, error) {
	out := make([]int64, max(len(bounds)-1, 0))
	for part := range slices.Chunk(slots, 100) {
		cmds := make([][]*redis.IntCmd, len(out))
		_, err := x.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range out {
				for _, slot := range part {
					cmds[i] = append(cmds[i], p.ZCount(ctx, x.dueKey(slot), above(bounds[i]), strconv.FormatInt(bounds[i+1], 10)))
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("counting the entries of %d slots: %w", len(slots), err)
		}
		for i := range out {
			for _, cmd := range cmds[i] {
				out[i] += cmd.Val()
			}
		}
	}
	return out, nil
}

// above returns the score range that starts right after pos.
func above(pos int64) string { return "(" + strconv.FormatInt(pos, 10) }

// libraryLog passes go-redis's own messages to zap. The library has one logger per process; the
// latest Index provides it.
type libraryLog struct{ to atomic.Pointer[zap.Logger] }

var shared libraryLog

func adaptLog(log *zap.Logger) {
	shared.to.Store(log)
	redis.SetLogger(&shared)
}

func (l *libraryLog) Printf(_ context.Context, format string, v ...any) {
	// Mostly opened and closed connections. The caller also gets important problems as errors.
	l.to.Load().Debug("redis client", zap.String("message", fmt.Sprintf(format, v...)))
}
