package chaos

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/notyet/notyet/test/chaos/history"
)

// stormEvery is which life in so many is a storm.
const stormEvery = 40

// storm returns many requests about one identity. The values of this load are no JSON, so a merge keeps the last one.
func storm(r *rand.Rand, base history.Op, now int64) (out []planned) {
	if r.IntN(4) == 0 {
		base.Topic, base.AckTimeout, base.MaxAttempts, base.Backoff = ackTopic, ackTimeout, ackAttempts, ackBackoff
	}
	base.Due = 0
	for _, t := range history.Storm(r, base, now) {
		t.Op.Merge = ""
		out = append(out, planned{at: t.At, op: t.Op})
	}
	return out
}

// looker asks the API of the nodes for the latest storms.
type looker struct {
	rec *history.Recorder

	mu  sync.Mutex
	ids [50]history.Op
	n   int
}

// note remembers an identity of a storm.
func (l *looker) note(o history.Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.ids[(l.n+len(l.ids)-1)%len(l.ids)]; last.ID == o.ID && last.Topic == o.Topic {
		return
	}
	l.ids[l.n%len(l.ids)] = o
	l.n++
}

func (l *looker) any(r *rand.Rand) history.Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[r.IntN(len(l.ids))]
}

// run looks until ctx ends. A node that does not answer shows nothing.
func (l *looker) run(ctx context.Context, nodes []*node) {
	client := &http.Client{Timeout: 2 * time.Second}
	r := rand.New(rand.NewPCG(uint64(len(nodes)), 0))
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		if o := l.any(r); o.ID != "" {
			l.look(ctx, client, nodes[r.IntN(len(nodes))], o)
		}
	}
}

func (l *looker) look(ctx context.Context, client *http.Client, n *node, o history.Op) {
	seen := history.Look{Topic: o.Topic, ID: o.ID, Call: time.Now().UnixMilli()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.http+"/api/v1/tasks/"+url.PathEscape(o.Topic)+"/"+url.PathEscape(o.ID), nil)
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	var v struct {
		State   string
		Due     int64
		Version *int64
	}
	switch {
	case resp.StatusCode == http.StatusNotFound:
	case resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&v) != nil:
		return
	}
	seen.State, seen.Due, seen.Version, seen.Return = v.State, v.Due, -1, time.Now().UnixMilli()
	if v.Version != nil {
		seen.Version = *v.Version
	}
	l.rec.Look(seen)
}
