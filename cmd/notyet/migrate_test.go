package main

import (
	"testing"

	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/stretchr/testify/require"
)

func TestMigrateTheDatabaseAlone(t *testing.T) {
	environ := []string{"NOTYET_MYSQL_DSN=sqlite:" + t.TempDir() + "/notyet.db"}
	r := notyet(t, environ, "", "migrate", "--database-only")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Equal(t, "database: up to date, 64 slots\n", r.stdout)
	require.Equal(t, command.ExitUsage, notyet(t, environ, "", "migrate").code, "with Kafka it needs to know where")
	require.Equal(t, command.ExitUsage, notyet(t, environ, "", "migrate", "--database-only", "--kafka-moved").code)
}
