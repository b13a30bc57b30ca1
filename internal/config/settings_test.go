package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func settingsOf(c *Config) map[string]Setting {
	out := map[string]Setting{}
	for _, s := range c.Settings() {
		out[s.Key] = s
	}
	return out
}

func TestSettingsSayWhereTheyComeFrom(t *testing.T) {
	file := write(t, "kafka:\n  brokers: [file:1, file:2]\nwindow: 1h\nslots: 8\ncallback:\n  enabled: true\n")
	cfg, problems := Read(Sources{File: file, Environ: []string{"NOTYET_HTTP_ADDR=:2", "NOTYET_WINDOW=3h"}, Flags: map[string]string{"slots": "10"}})
	require.Empty(t, problems)
	all := settingsOf(cfg)
	require.Equal(t, Setting{"kafka.brokers", []string{"file:1", "file:2"}, FromFile, file}, all["kafka.brokers"])
	require.Equal(t, Setting{"http.addr", ":2", FromEnvironment, "NOTYET_HTTP_ADDR"}, all["http.addr"])
	require.Equal(t, Setting{"window", "3h0m0s", FromEnvironment, "NOTYET_WINDOW"}, all["window"], "the variable wins")
	require.Equal(t, Setting{"slots", 10, FromFlag, ""}, all["slots"])
	require.Equal(t, Setting{"callback.enabled", true, FromFile, file}, all["callback.enabled"])
	require.Equal(t, Setting{"dispatcher.stage-bytes", "256MiB", "default", ""}, all["dispatcher.stage-bytes"])
	require.Equal(t, "environment NOTYET_WINDOW", all["window"].From())
	for _, key := range Keys() {
		require.Contains(t, all, key)
	}
}

func TestAnIntakesSettingsComeFromItsEntryOrFromTheCommonOnes(t *testing.T) {
	file := write(t, "intake:\n  topics:\n    - plain\n    - {topic: special, max-delay: 1h, allowed-targets: ['o.?']}\n")
	cfg, problems := Read(Sources{File: file, Environ: []string{"NOTYET_INTAKE_MAX_DELAY=48h"}})
	require.Empty(t, problems)
	all := settingsOf(cfg)
	require.Equal(t, []string{"plain", "special"}, all["intake.topics"].Value)
	require.Equal(t, Setting{"intake.topics[plain].max-delay", "48h0m0s", FromEnvironment, "NOTYET_INTAKE_MAX_DELAY"}, all["intake.topics[plain].max-delay"])
	require.Equal(t, Setting{"intake.topics[special].max-delay", "1h0m0s", FromFile, file}, all["intake.topics[special].max-delay"])
	require.Equal(t, []string{"o.?"}, all["intake.topics[special].allowed-targets"].Value, "a pattern's question mark hides nothing")
	require.Equal(t, "default", all["intake.topics[special].max-value-bytes"].Source)
}

func TestAValueThatCannotBeReadIsMarked(t *testing.T) {
	cfg, problems := Read(Sources{Environ: []string{"NOTYET_SLOTS=many"}})
	require.Len(t, problems, 1)
	require.Equal(t, Setting{"slots", "(not valid)", FromEnvironment, "NOTYET_SLOTS"}, settingsOf(cfg)["slots"])
}

// No secret is in what Settings and the mistakes show, wherever it is set, however its text is formed, and
// whether or not it is valid.
func TestSettingsHideSecrets(t *testing.T) {
	forms := []string{
		"%s", "user:%s", "user:%s@tcp(db:3306)/notyet", "user:p%%/%s@tcp(db:3306)/notyet", "user:p@%s@tcp(db:3306)/notyet?parseTime=true", "user:p@tcp(db:3306)/notyet?x=%s",
		"user:%s(db:3306)/notyet", "user:%s@db/notyet", "mysql://user:%s@db/notyet", "user:%s/notyet", "sqlite:/tmp/x?_key=%s", "http://user:%s@h", "a=%s@h", "h?token=%s",
	}
	planted := 0
	for _, f := range fields {
		for _, form := range forms {
			misplaced := strings.ContainsAny(form, "@=")
			if !f.secret && !misplaced {
				continue
			}
			planted++
			value := fmt.Sprintf(form, "geheim")
			quoted, err := json.Marshal(value)
			require.NoError(t, err)
			for name, s := range map[string]Sources{
				"file":        {File: write(t, nested(f.key, string(quoted))), Environ: []string{}},
				"environment": {Environ: []string{f.env() + "=" + value}},
				"flag":        {Environ: []string{}, Flags: map[string]string{f.key: value}},
			} {
				cfg, problems := Read(s)
				shown, err := json.Marshal(cfg.Settings())
				require.NoError(t, err)
				text := string(shown) + (&Error{problems}).Error() + cfg.String()
				require.False(t, strings.Contains(text, "geheim"), "%s by %s: %s", f.key, name, value)
			}
		}
	}
	require.Greater(t, planted, 500)
}

// nested is YAML that sets one key.
func nested(key, value string) string {
	var out strings.Builder
	parts := strings.Split(key, ".")
	for i, p := range parts {
		fmt.Fprintf(&out, "%s%s:", strings.Repeat("  ", i), p)
		if i < len(parts)-1 {
			out.WriteString("\n")
		}
	}
	return out.String() + " " + value + "\n"
}

func TestADSNShowsItsDatabaseOnly(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                               "",
		"u:p@tcp(h:3306)/d":              "u:(hidden)@tcp(h:3306)/d",
		"u@unix(/run/db.sock)/d?tls=x":   "(hidden)",
		"u@unix(/run/db.sock)/d?a=b":     "u@unix(/run/db.sock)/d?(hidden)",
		"u:p@tcp(h)/d?parseTime=true":    "u:(hidden)@tcp(h:3306)/d?(hidden)",
		"sqlite:/var/lib/notyet.db":      "sqlite:/var/lib/notyet.db",
		"u:p(h:1)/d":                     "(hidden)",
		"postgres://u:p@h/d?sslmode=off": "(hidden)",
	} {
		require.Equal(t, want, masked("mysql.dsn", dsn), dsn)
	}
}

func TestWhoeverPrintsAConfigSeesNoSecret(t *testing.T) {
	cfg, err := load(t, "", []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d"}, nil)
	require.NoError(t, err)
	for _, text := range []string{cfg.String(), fmt.Sprint(cfg), fmt.Sprintf("%+v", cfg)} {
		require.Contains(t, text, "mysql.dsn: u:(hidden)@tcp(h:1)/d\n")
		require.Contains(t, text, "dispatcher.stage-bytes: 256MiB\n")
		require.NotContains(t, text, "geheim")
	}
}
