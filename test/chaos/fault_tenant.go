package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// attackTopics begins the names of all topics that the tenant which attacks asks for.
const attackTopics = "chaos.attack."

// Sizes of an attack, beside those that follow from the size of a burst.
const (
	attackOrigins = 100
	slowBodies    = 700 // of each token
	callsEach     = 50 * time.Millisecond
	asksEach      = 100 * time.Millisecond
	attackLead    = 2 * time.Second // from the requests of an attack until they are due
)

// strike is an attack in progress.
type strike struct {
	*breaker
	span    time.Duration
	attacks []func(ctx context.Context, due time.Time) error
	node    *node // whose API is attacked

	mu    sync.Mutex
	found history.Attack
	asked map[string]time.Time // callbacks of another tenant, by id: when they are due
}

// tenantAttacks has one tenant do at once all by which it may hold up the others: many names of missing topics, topics that are met for the first
// time, cancels of unknown ids far beyond its rate, callbacks to origins that answer once, and requests whose bodies do not end. The fault breaks
// nothing.
func tenantAttacks(b *breaker) error {
	a := &strike{breaker: b, node: b.one(scannerRole), asked: map[string]time.Time{}, span: min(5*time.Second+time.Duration(b.burst)*time.Second/2000, 10*time.Second)}
	names := min(max(b.burst/2, 2*attackNames), 10_000)
	meets, err := a.makeTopics(min(max(b.burst/20, 50), 100))
	if err != nil {
		return err
	}
	a.attacks = append(a.attacks, a.toTopics("missing", names), a.toTopics("met", meets), a.cancels(2*a.mostRows(a.span)), a.origins(min(max(b.burst/500, 4), 20)))
	b.waitUntil(patience, func() bool { return b.overdue(b.ctx) == 0 }) // what an earlier fault has left is not of this one
	answer := b.receivers.begin()
	defer answer()
	b.note.Only = []string{attackTopics}
	b.began(attackIntake + ", " + a.node.name)
	rows, err := a.run()
	if err != nil {
		return err
	}
	answer()
	behind, err := a.drain()
	if err != nil {
		return err
	}
	died := b.sum(b.ctx, "SELECT COUNT(*) FROM "+database+".dead_letters WHERE topic LIKE ?", a.topic("missing", "%"))
	came := b.waitUntil(patience, func() bool { return a.missing() == 0 })
	a.noteCalls()
	b.note.Attack = &a.found
	b.evidence(died > 0 && behind > 0 && b.receivers.answered() > 0, "%d missing names (%d dead letters by then), %d topics met, %d origins, %d rows of cancels of %d allowed, and %d requests waited; all callbacks of others came: %v",
		names, died, meets, b.receivers.answered(), rows, a.found.Most, behind, came)
	return nil
}

func (a *strike) topic(kind, n string) string {
	return attackTopics + kind + "." + strconv.Itoa(a.note.N) + "." + n
}

// id names the tasks of this attack.
func (a *strike) id(n any) string { return fmt.Sprintf("attack%d-%v", a.note.N, n) }

// makeTopics makes topics that no producer has met.
func (a *strike) makeTopics(n int) (int, error) {
	names := make([]string, n)
	for i := range names {
		names[i] = a.topic("met", strconv.Itoa(i))
	}
	var err error
	made := a.waitUntil(patience, func() bool { // a broker that is busy may take them and not say so
		if _, err = a.admin.CreateTopics(a.ctx, 1, -1, nil, names...); err != nil {
			return false
		}
		var known map[string][16]byte
		known, err = kafka.TopicIDs(a.ctx, a.attacker, names...)
		return len(known) == n
	})
	if !made {
		return 0, fmt.Errorf("making topics for a tenant that attacks: %w", cmp.Or(err, errors.New("brokers do not know them all")))
	}
	return n, nil
}

// toTopics sends a task to each of n topics.
func (a *strike) toTopics(kind string, n int) func(context.Context, time.Time) error {
	return func(ctx context.Context, due time.Time) error {
		for i := range n {
			a.produce(ctx, attackIntake, a.id(kind+strconv.Itoa(i)), due, schemas.HeaderTopic, a.topic(kind, strconv.Itoa(i)))
		}
		return a.attacker.Flush(ctx)
	}
}

// cancels sends cancels of ids that no task has. Each has a version, and is remembered.
func (a *strike) cancels(n int64) func(context.Context, time.Time) error {
	return func(ctx context.Context, _ time.Time) error {
		for i := range n {
			a.produce(ctx, slowIntake, a.id(i), time.Time{}, schemas.HeaderTopic, plainTopics[0], schemas.HeaderOp, history.Cancel, schemas.HeaderVersion, "1")
		}
		return a.attacker.Flush(ctx)
	}
}

// origins sends a callback to each origin, which is answered, and then each more that are not.
func (a *strike) origins(each int) func(context.Context, time.Time) error {
	return func(ctx context.Context, due time.Time) error {
		for i := range attackOrigins * (1 + each) {
			at := due
			if i < attackOrigins {
				at = due.Add(-attackLead / 2)
			}
			a.produce(ctx, attackIntake, a.id(fmt.Sprint("origin", i)), at, schemas.HeaderURL, a.receivers.origin(i%attackOrigins), schemas.HeaderAckTimeout, "4m")
		}
		return a.attacker.Flush(ctx)
	}
}

func (a *strike) produce(ctx context.Context, intake, id string, due time.Time, headers ...string) {
	r := &kgo.Record{Topic: intake, Key: []byte(id), Headers: []kgo.RecordHeader{{Key: schemas.HeaderID, Value: []byte(id)}}}
	if !due.IsZero() {
		headers = append(headers, schemas.HeaderAt, strconv.FormatInt(due.UnixMilli(), 10))
	}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	a.attacker.Produce(ctx, r, nil)
}

// mostRows is how many rows the cancels may have left after a span.
func (a *strike) mostRows(span time.Duration) int64 {
	return slowPending + 4*slowRate*int64(span/time.Second+1) + 1000
}

// run attacks, and has another tenant and an administrator go on meanwhile. It returns how many rows the attack has left.
func (a *strike) run() (rows int64, err error) {
	begin := time.Now()
	ctx, stop := context.WithTimeout(a.ctx, a.span)
	defer stop()
	var going sync.WaitGroup
	going.Go(func() { a.slowBodies(ctx) })
	going.Go(func() { a.call(ctx) })
	going.Go(func() { a.ask(ctx) })
	errs := make([]error, len(a.attacks))
	for i, attack := range a.attacks {
		going.Go(func() { errs[i] = attack(a.ctx, begin.Add(attackLead)) })
	}
	going.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("attacking: %w", err)
	}
	a.found.Most = a.mostRows(time.Since(begin))
	rows = a.sum(a.ctx, "SELECT COUNT(*) FROM "+database+".tasks WHERE topic = ? AND id LIKE ?", plainTopics[0], a.id("%"))
	a.found.Rows = rows
	if rows < 0 {
		return rows, errors.New("the rows of a tenant that attacks cannot be counted")
	}
	return rows, nil
}

// slowBodies opens connections whose requests do not end.
func (a *strike) slowBodies(ctx context.Context) {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var open sync.WaitGroup
	for i := range slowTokens * slowBodies {
		open.Go(func() {
			for ctx.Err() == nil {
				if c, err := from.DialContext(ctx, "tcp", a.node.http); err == nil {
					gone := context.AfterFunc(ctx, func() { _ = c.Close() })
					_, _ = fmt.Fprintf(c, "POST /api/v1/timers/preview HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s%d\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", a.node.http, slowToken, i%slowTokens)
					_, _ = c.Read(make([]byte, 1024)) // until there is an answer, or no connection
					gone()
					_ = c.Close()
				}
				loop.Rest(ctx, 5*time.Second)
			}
		})
	}
	open.Wait()
}

// call has another tenant ask for callbacks.
func (a *strike) call(ctx context.Context) {
	for i := 0; loop.Rest(ctx, callsEach) == nil; i++ {
		id, due := a.id(fmt.Sprint("call", i)), time.Now().Add(time.Second)
		r := &kgo.Record{Topic: callsIntake, Key: []byte(id), Headers: []kgo.RecordHeader{
			{Key: schemas.HeaderID, Value: []byte(id)}, {Key: schemas.HeaderURL, Value: []byte(a.receivers.good())}, {Key: schemas.HeaderAt, Value: []byte(strconv.FormatInt(due.UnixMilli(), 10))},
		}}
		a.client.Produce(a.ctx, r, func(r *kgo.Record, err error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			if err == nil { // otherwise it may come, or not
				a.asked[id] = due
			}
		})
	}
}

// ask has an administrator look at tasks, each time on another connection.
func (a *strike) ask(ctx context.Context) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for loop.Rest(ctx, asksEach) == nil {
		begin := time.Now()
		status := administer(a.ctx, client, "http://"+a.node.http+"/api/v1/tasks?limit=1")
		if status == http.StatusOK {
			a.found.Answers = append(a.found.Answers, time.Since(begin).Milliseconds())
		} else {
			a.found.Refused = append(a.found.Refused, status)
		}
	}
}

// administer returns the status of the answer to an administrator; 0: there was none.
func administer(ctx context.Context, client *http.Client, url string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// drain has all be read that waits for the rate of its intake, and returns how much that was.
func (a *strike) drain() (behind int64, err error) {
	if behind, err = a.lag(a.ctx, slowIntake); err != nil {
		return 0, err
	}
	if err := a.setRate(unlimitedRate); err != nil {
		return 0, err
	}
	if !a.waitUntil(patience, func() bool { left, err := a.lag(a.ctx, otherIntakes...); return err == nil && left == 0 }) {
		return 0, errors.New("what a tenant that attacks has sent is not read")
	}
	return behind, a.setRate(slowRate)
}

// missing returns how many callbacks of the other tenant have not come.
func (a *strike) missing() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.asked {
		if _, ok := a.receivers.arrival(id); !ok {
			n++
		}
	}
	return n
}

func (a *strike) noteCalls() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found.Asked = len(a.asked)
	for id, due := range a.asked {
		if at, ok := a.receivers.arrival(id); ok {
			a.found.Late = append(a.found.Late, at.UnixMilli()-due.UnixMilli())
		}
	}
}
