package share

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// Patience is how long a request waits for its turns, all of them together.
const Patience = 5 * time.Second

// ErrTurn means: a request waited for its turn in vain. Nothing was done.
var ErrTurn = errors.New("others are served before this request, and its turn did not come within " + Patience.String() + ": nothing was done, try again in a second")

// Account is the taker of places. The zero Account takes from the rest and the reserve, unshared.
type Account struct {
	Tenant, Token string
	// Reserve lets the account have the places kept free of all others.
	Reserve bool
}

// Turns are places, or bytes, that requests take for a while and give back. Tenants share them
// first, and then the tokens of each tenant, so no number of tokens buys a tenant more.
//
// A tenant without places gets one if any is left. Further ones go up to an eighth of the rest; of
// a lone tenant, or one that gave back more in a second than it holds, up to all of the rest. So n
// tenants that give nothing back leave (8/9)^n, a lone one half. Tokens share their tenant's part
// likewise.
//
// Of the waiting, the tenant served longest ago is next, and of its tokens likewise.
type Turns struct {
	total, reserve, each int64

	mu       sync.Mutex
	held     int64 // without the reserve's accounts
	reserved int64 // by those
	waiting  int
	served   int64
	tenants  parties
}

// NewTurns returns Turns of total places, and of some in reserve. A token has at most each of them.
func NewTurns(total, reserve, each int64) *Turns {
	return &Turns{total: total, reserve: reserve, each: each, tenants: parties{}}
}

// parties are tenants, or the tokens of one, with places or waiting for some.
type parties map[string]*party

type party struct {
	held   int64
	turn   int64    // when the party came, or was served last
	second int64    // Unix
	back   [2]int64 // what was given back in that second, and in the one before

	tokens  parties   // of a tenant
	waiting []*waiter // of a token, in the order of their arrival
}

type waiter struct {
	Account
	n    int64
	came chan struct{}
}

// Try takes n places if they are there and nobody waits. The caller gives them back with leave.
func (t *Turns) Try(a Account, n int64) (leave func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.forget(a)
	if t.waiting > 0 || !t.may(a, n) {
		return nil, false
	}
	t.change(a, n)
	return func() { t.giveBack(a, n) }, true
}

// Take waits for n places, until the end of Wait's time. Free places are had after that time, too.
func (t *Turns) Take(ctx context.Context, a Account, n int64) (leave func(), err error) {
	if leave, ok := t.Try(a, n); ok {
		return leave, nil
	}
	w := &waiter{a, n, make(chan struct{})}
	t.enter(w)
	over, cancel := context.WithDeadline(ctx, until(ctx))
	defer cancel()
	select {
	case <-w.came:
	case <-over.Done():
		if t.abandon(w) {
			return nil, cmp.Or(ctx.Err(), ErrTurn)
		}
	}
	return func() { t.giveBack(a, n) }, nil
}

// Waiting is how many wait.
func (t *Turns) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting
}

func (t *Turns) enter(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, token := t.parties(w.Account)
	token.waiting = append(token.waiting, w)
	t.waiting++
	t.serve()
}

// abandon ends a wait. False: its turn has come.
func (t *Turns) abandon(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, token := t.parties(w.Account)
	i := slices.Index(token.waiting, w)
	if i >= 0 {
		token.waiting = slices.Delete(token.waiting, i, i+1)
		t.waiting--
		t.serve() // others may have waited behind this one
	}
	t.forget(w.Account)
	return i >= 0
}

func (t *Turns) giveBack(a Account, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change(a, -n)
	t.forget(a)
	t.serve()
}

// serve gives places to the waiting whose turn has come.
func (t *Turns) serve() {
	for t.waiting > 0 {
		w := t.next()
		if w == nil {
			return
		}
		t.waiting--
		t.served++
		tenant, token := t.parties(w.Account)
		tenant.turn, token.turn, token.waiting = t.served, t.served, token.waiting[1:]
		t.change(w.Account, w.n)
		close(w.came)
	}
}

// next returns a waiter with enough room. If the first of a tenant does not fit, all behind wait:
// otherwise small ones would always come before a large one.
func (t *Turns) next() *waiter {
	full := false
	for _, tenant := range t.tenants.byTurn() {
		for _, token := range tenant.tokens.byTurn() {
			if len(token.waiting) == 0 {
				continue
			}
			switch w := token.waiting[0]; {
			case (!full || w.Reserve) && t.may(w.Account, w.n):
				return w
			case tenant.held == 0:
				full = true
			}
		}
	}
	return nil
}

func (all parties) byTurn() []*party {
	return slices.SortedFunc(maps.Values(all), func(a, b *party) int { return cmp.Compare(a.turn, b.turn) })
}

// may tells whether the rest and the shares allow n places more.
func (t *Turns) may(a Account, n int64) bool {
	nobody := a == Account{}
	left := t.total - t.held - max(t.reserved-t.reserve, 0)
	if a.Reserve || nobody {
		left = t.total + t.reserve - t.held - t.reserved
	}
	if nobody {
		return n <= left
	}
	now := time.Now().Unix()
	tenant, token := t.parties(a)
	ours := tenant.may(left, len(t.tenants) == 1, now)
	return n <= ours && n <= token.may(ours, len(tenant.tokens) == 1, now) && token.held+n <= t.each
}

// may is how many more places the party may have, of so many left for all of its kind.
func (p *party) may(left int64, alone bool, now int64) int64 {
	p.pass(now)
	switch {
	case p.held == 0:
		return left
	case alone, p.held < max(p.back[0], p.back[1]):
		return left - p.held
	}
	return left/8 - p.held
}

// pass has the seconds pass until now.
func (p *party) pass(now int64) {
	switch now - p.second {
	case 0:
	case 1:
		p.back = [2]int64{0, p.back[0]}
	default:
		p.back = [2]int64{}
	}
	p.second = now
}

// change notes n places more, or fewer.
func (t *Turns) change(a Account, n int64) {
	if a.Reserve {
		t.reserved += n
	} else {
		t.held += n
	}
	now := time.Now().Unix()
	tenant, token := t.parties(a)
	for _, p := range []*party{tenant, token} {
		p.held += n
		p.pass(now)
		p.back[0] += max(-n, 0)
	}
}

func (t *Turns) parties(a Account) (tenant, token *party) {
	tenant = t.party(t.tenants, a.Tenant)
	return tenant, t.party(tenant.tokens, a.Token)
}

func (t *Turns) party(of parties, name string) *party {
	if of[name] == nil {
		t.served++
		of[name] = &party{turn: t.served, tokens: parties{}}
	}
	return of[name]
}

// forget forgets an idle token without places, and a tenant without tokens.
func (t *Turns) forget(a Account) {
	tenant, token := t.parties(a)
	if token.held == 0 && len(token.waiting) == 0 {
		delete(tenant.tokens, a.Token)
	}
	if len(tenant.tokens) == 0 {
		delete(t.tenants, a.Tenant)
	}
}

type waitKey struct{}

// Wait begins a request's time for waiting, one for all its turns. Without Wait, each has its own.
func Wait(ctx context.Context) context.Context {
	return context.WithValue(ctx, waitKey{}, time.Now().Add(Patience))
}

func until(ctx context.Context) time.Time {
	if at, ok := ctx.Value(waitKey{}).(time.Time); ok {
		return at
	}
	return time.Now().Add(Patience)
}
