package main

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/producer"
	"github.com/notyet/notyet/schemas"
)

// usage is what one chunk adds to an account. notyet delivers the sum: the numbers of all chunks of
// a file, added field by field.
type usage struct {
	Bytes   int64 `json:"bytes"`
	Chunks  int64 `json:"chunks"`
	updates int64 // of the quota table
}

func total(accounts map[string]usage) (sum usage) {
	for _, u := range accounts {
		sum.Bytes += u.Bytes
		sum.Chunks += u.Chunks
		sum.updates += u.updates
	}
	return sum
}

// upload stands in for the upload service.
type upload struct {
	options
	producer *producer.Producer
	run      string // part of the users' names: each run starts with empty accounts

	mu   sync.Mutex
	sent map[string]usage
}

// all uploads every file of every user at once, and returns what each user has sent.
func (u *upload) all(ctx context.Context) (map[string]usage, error) {
	u.sent = map[string]usage{}
	group, ctx := errgroup.WithContext(ctx)
	for user := range u.users {
		for file := range u.files {
			group.Go(func() error { return u.file(ctx, fmt.Sprintf("%s-user-%d", u.run, user+1), file) })
		}
	}
	err := group.Wait()
	return u.sent, err
}

func (u *upload) file(ctx context.Context, user string, file int) error {
	// The digest of the content identifies the file before it is complete and has a row of its own.
	sum := md5.Sum(fmt.Appendf(nil, "content of file %d", file))
	digest := hex.EncodeToString(sum[:])
	for range u.chunks {
		size := int64(1 + rand.IntN(5<<20))
		if err := u.chunk(ctx, user, digest, size); err != nil {
			return err
		}
		u.mu.Lock()
		s := u.sent[user]
		u.sent[user] = usage{Bytes: s.Bytes + size, Chunks: s.Chunks + 1}
		u.mu.Unlock()
		select {
		case <-time.After(u.pace):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// chunk requests that the chunk be accounted for when its file has been quiet for a while. It
// returns when Kafka has the request; from then on the update is never lost.
func (u *upload) chunk(ctx context.Context, user, digest string, size int64) error {
	value, err := json.Marshal(usage{Bytes: size, Chunks: 1})
	if err != nil {
		return err
	}
	settings := schemas.DefaultSettings()
	settings.IfExists = schemas.Merge
	settings.Merge = schemas.MergeSum
	settings.MaxWait = u.maxWait
	settings.Events = schemas.EventsNone
	_, err = u.producer.Schedule(ctx, producer.Task{
		Topic:    u.topic,
		ID:       user + "/" + digest,
		Key:      []byte(user), // keeps one user's updates in order, and tells the consumer whose they are
		Delay:    u.delay,
		Value:    value,
		Settings: &settings,
	})
	return err
}
