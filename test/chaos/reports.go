package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// behaviour is what the consumer does with one attempt.
type behaviour int

const (
	reportsOK behaviour = iota
	reportsTwice
	reportsForeign // about an attempt and a task that never existed; then ok
	reportsRetry
	reportsRetryAfter
	reportsLate // after the timeout
	reportsFail
	staysSilent
)

const retryAfter = 700 * time.Millisecond

// behave chooses by seed, op and attempt.
func behave(seed uint64, op int64, attempt int) behaviour {
	r := rand.New(rand.NewPCG(seed^uint64(attempt)<<32, uint64(op)))
	switch p := r.IntN(100); {
	case p < 50:
		return reportsOK
	case p < 58:
		return reportsTwice
	case p < 64:
		return reportsForeign
	case p < 74:
		return reportsRetry
	case p < 82:
		return reportsRetryAfter
	case p < 88:
		return reportsLate
	case p < 92:
		return reportsFail
	}
	return staysSilent
}

// reporter consumes the tasks that wait for reports, and reports.
type reporter struct {
	seed   uint64
	reader *kgo.Client
	writer *kgo.Client
	log    *zap.Logger
}

func (c *Cluster) newReporter(seed uint64) (*reporter, error) {
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.brokers()...), kgo.ConsumeTopics(ackTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &reporter{seed: seed, reader: reader, writer: c.client, log: c.log}, nil
}

func (p *reporter) run(ctx context.Context) {
	defer p.reader.Close()
	for ctx.Err() == nil {
		p.reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) { p.handle(ctx, r) })
	}
}

func (p *reporter) handle(ctx context.Context, r *kgo.Record) {
	d, _, err := schemas.ParseDelivery(r)
	if err != nil {
		return // the checker finds it too
	}
	rep := schemas.Report{Topic: r.Topic, ID: d.ID, Attempt: d.Attempt, Status: schemas.StatusOK, RetryAfter: schemas.NoRetryAfter}
	switch behave(p.seed, history.Number(r.Value), d.Attempt) {
	case reportsOK:
		p.send(ctx, rep)
	case reportsTwice:
		p.send(ctx, rep)
		p.send(ctx, rep)
	case reportsForeign:
		foreign := rep
		foreign.Attempt, foreign.Status = 99, schemas.StatusFail
		p.send(ctx, foreign)
		foreign.Attempt, foreign.ID = 1, "nobody-"+d.ID
		p.send(ctx, foreign)
		p.send(ctx, rep)
	case reportsRetry:
		rep.Status = schemas.StatusRetry
		p.send(ctx, rep)
	case reportsRetryAfter:
		rep.Status, rep.RetryAfter = schemas.StatusRetry, retryAfter
		p.send(ctx, rep)
	case reportsLate:
		time.AfterFunc((ackTimeout+ackBackoff/2)*time.Millisecond, func() { p.send(ctx, rep) })
	case reportsFail:
		rep.Status, rep.Error = schemas.StatusFail, "it is beyond me"
		p.send(ctx, rep)
	}
}

func (p *reporter) send(ctx context.Context, rep schemas.Report) {
	p.writer.Produce(ctx, schemas.EncodeReport(reportsTopic, rep), func(_ *kgo.Record, err error) {
		if err != nil && ctx.Err() == nil {
			p.log.Warn("a report was lost on its way to the broker", zap.Error(err)) // same effect as no report
		}
	})
}
