package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/doctor"
	"github.com/notyet/notyet/internal/command"
)

func TestDoctorsExitCodes(t *testing.T) {
	sqlite := "NOTYET_MYSQL_DSN=sqlite:" + t.TempDir() + "/notyet.db"
	nowhere := "NOTYET_KAFKA_BROKERS=127.0.0.1:1"
	r := notyet(t, nil, "", "doctor")
	require.Equal(t, command.ExitUsage, r.code)
	require.Contains(t, r.stderr, "no server is configured")
	require.Equal(t, command.ExitUsage, notyet(t, []string{nowhere}, "", "doctor", "--patience", "1ms").code)

	r = notyet(t, []string{nowhere, sqlite}, "", "doctor", "--json", "--patience", "2s")
	require.Equal(t, command.ExitFailed, r.code, r.stderr)
	require.Empty(t, r.stderr)
	var out examined
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &out))
	levels := map[string]doctor.Level{}
	for _, f := range out.Findings {
		levels[f.Check] = f.Level
		require.True(t, f.Level != doctor.Failure || f.Fix != "", "%+v", f)
	}
	require.Equal(t, doctor.Failure, levels["kafka.reachable"])
	require.Equal(t, doctor.OK, levels["mysql.reachable"])
	require.Equal(t, doctor.Failure, levels["mysql.schema"])
	require.NotContains(t, levels, "redis.reachable", "it is not configured")

	r = notyet(t, []string{nowhere, sqlite}, "", "doctor", "--patience", "2s")
	require.Contains(t, r.stdout, "fix: run `notyet migrate`")
	require.Contains(t, r.stdout, "failures")
}

func TestDoctorIsStrictWhenAsked(t *testing.T) {
	d := startDev(t)
	environ := []string{"NOTYET_KAFKA_BROKERS=" + d.kafka}
	r := notyet(t, environ, "", "doctor")
	require.Equal(t, command.ExitDone, r.code, r.stdout)
	require.Contains(t, r.stdout, "has one copy")
	require.Equal(t, command.ExitFailed, notyet(t, environ, "", "doctor", "--strict").code)

	own := fileWith(t, "notyet.yaml", "intake:\n  topics: [notyet.intake, {topic: in.later, target: later}]\n")
	r = notyet(t, environ, "", "doctor", "--all", "--config", own, "--targets", "later,other")
	for _, target := range []string{"later", "other"} {
		require.Equal(t, 1, strings.Count(r.stdout, "topic "+target+": 4 partitions"), "%s in %s", target, r.stdout)
	}
}
