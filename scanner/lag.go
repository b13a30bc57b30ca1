package scanner

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

const (
	lagEvery    = 10 * time.Second
	lagPatience = 5 * time.Second
)

// lag shows how many records of the assigned partitions are not stored yet. It asks Kafka alone, so
// it shows the lag of a database that is away. Only its own loop uses it.
type lag struct {
	asks   *kgo.Client
	topics []string
	parts  *partitions
	gauge  *prometheus.GaugeVec
	log    *zap.Logger
}

func newLag(asks *kgo.Client, topics []string, parts *partitions, reg prometheus.Registerer, log *zap.Logger) *lag {
	gauge := promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "scanner", Name: "lag_records",
		Help: "Records of a partition of an intake, or of the reports, that are not stored yet. Not there if Kafka does not say where the partition ends."}, []string{"topic", "partition"})
	return &lag{asks: asks, topics: topics, parts: parts, gauge: gauge, log: log}
}

func (l *lag) run(ctx context.Context) { every(ctx, lagEvery, l.look) }

func (l *lag) look(ctx context.Context) {
	bound, cancel := context.WithTimeout(ctx, lagPatience)
	defer cancel()
	at := l.parts.storedUpTo() // before Kafka is asked, whose logs only grow
	ends, err := kafka.Ends(bound, l.asks, l.topics...)
	l.gauge.Reset() // partitions that others have now, and what is not known
	if err != nil {
		if ctx.Err() == nil {
			l.log.Debug("asking where the intake ends failed", zap.Error(err))
		}
	}
	for key, next := range at {
		if end, ok := ends[key.topic][key.partition]; ok {
			l.gauge.WithLabelValues(key.topic, strconv.Itoa(int(key.partition))).Set(float64(max(end-next, 0)))
		}
	}
}

// storedUpTo returns the first offset of each assigned partition that is not stored.
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
