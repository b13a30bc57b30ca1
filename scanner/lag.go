package scanner

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
)

const (
	lagEvery    = 10 * time.Second
	lagPatience = 5 * time.Second
)

// lag shows how many records of the assigned partitions are not stored yet. It asks Kafka alone, so
// the lag shows while the database is away. Only its own loop uses lag.
type lag struct {
	asks      *kgo.Client
	topics    []string
	parts     *partitions
	placement *placement
	gauge     *prometheus.GaugeVec
	hidden    *prometheus.GaugeVec
	standing  *standing
	log       *zap.Logger
}

func newLag(asks *kgo.Client, topics []string, parts *partitions, placement *placement, standing *standing, reg prometheus.Registerer, log *zap.Logger) *lag {
	gauge := promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "scanner", Name: "lag_records",
		Help: "Records of a partition of an intake, or of the reports, that are not stored yet. Not there if Kafka does not say where the partition ends."}, []string{"topic", "partition"})
	hidden := promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "scanner", Name: "hidden_records",
		Help: "Records of a partition of an intake, or of the reports, behind the start of a transaction that is open. Nobody reads them before it ends; they are not in lag_records."}, []string{"topic", "partition"})
	return &lag{asks: asks, topics: topics, parts: parts, placement: placement, gauge: gauge, hidden: hidden, standing: standing, log: log}
}

func (l *lag) run(ctx context.Context) { l.look(ctx); loop.Every(ctx, lagEvery, l.look) }

func (l *lag) look(ctx context.Context) {
	bound, cancel := context.WithTimeout(ctx, lagPatience)
	defer cancel()
	at := l.parts.storedUpTo() // before Kafka is asked, whose logs only grow
	// Marks before ends: so all offsets between the two are behind an open transaction.
	marks, err := kafka.HighWatermarks(bound, l.asks, l.topics...)
	ends, err2 := kafka.Ends(bound, l.asks, l.topics...)
	l.gauge.Reset() // partitions that others have now, and what is not known
	l.hidden.Reset()
	if err := errors.Join(err, err2); err != nil && ctx.Err() == nil {
		l.log.Debug("asking where the intake ends failed", zap.Error(err))
	}
	if err2 == nil {
		for topic, parts := range ends {
			l.placement.partitions.Store(topic, len(parts))
		}
	}
	open, unknown := map[partitionKey]int64{}, []partitionKey(nil)
	for key, next := range at {
		mark, marked := marks[key.topic][key.partition]
		end, ended := ends[key.topic][key.partition]
		if ended {
			l.gauge.WithLabelValues(key.topic, strconv.Itoa(int(key.partition))).Set(float64(max(end-next, 0)))
		}
		switch {
		case !marked || !ended:
			unknown = append(unknown, key)
		case mark > end:
			l.hidden.WithLabelValues(key.topic, strconv.Itoa(int(key.partition))).Set(float64(mark - end))
			open[key] = end
		}
	}
	l.standing.blocked(open, unknown)
}

// storedUpTo returns the first unstored offset of each assigned partition.
func (p *partitions) storedUpTo() map[partitionKey]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[partitionKey]int64, len(p.sources))
	for key, src := range p.sources {
		if src != nil {
			out[key] = src.Next
		} else if r := p.readings[key]; r != nil {
			out[key] = r.first
		}
	}
	return out
}
