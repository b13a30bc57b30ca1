package service

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/doctor"
)

// A service logs each finding once, and counts what holds now.
func TestAServiceLogsItsFindingsOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "findings"}, []string{"check", "level"})
	e := &selfExamination{gauge: gauge, log: zap.New(core), logged: map[doctor.Finding]bool{}}
	bad := doctor.Finding{Check: "mysql.durable", Where: "db", Level: doctor.Warning, Found: "it forgets", Fix: "set it"}
	e.note([]doctor.Finding{bad, {Check: "kafka.version", Level: doctor.OK}}, nil)
	e.note([]doctor.Finding{bad}, nil)
	require.Equal(t, 1, logs.Len())
	require.Equal(t, "set it", logs.All()[0].ContextMap()["fix"])
	counted := func() int {
		reg := prometheus.NewRegistry()
		reg.MustRegister(gauge)
		families, err := reg.Gather()
		require.NoError(t, err)
		if len(families) == 0 {
			return 0
		}
		require.InDelta(t, 1, families[0].Metric[0].GetGauge().GetValue(), 0)
		return len(families[0].Metric)
	}
	require.Equal(t, 1, counted())
	e.note(nil, errors.New("stopping"))
	require.Equal(t, 1, counted())
	e.note(nil, nil)
	require.Zero(t, counted())
}
