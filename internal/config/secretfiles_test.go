package config

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSecretsFromFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	environ := []string{
		"NOTYET_KAFKA_SASL_MECHANISM=PLAIN", "NOTYET_KAFKA_SASL_USER_FILE=" + file("user", "u\n"), "NOTYET_KAFKA_SASL_PASSWORD_FILE=" + file("kafka", "geheim1\n"),
		"NOTYET_MYSQL_DSN_FILE=" + file("dsn", "u:geheim2@tcp(h:1)/d\n"), "NOTYET_REDIS_MASTER=m",
		"NOTYET_REDIS_PASSWORD_FILE=" + file("redis", "geheim3"), "NOTYET_REDIS_SENTINEL_PASSWORD_FILE=" + file("sentinel", "geheim4"),
		"NOTYET_ZOOKEEPER_AUTH_FILE=" + file("auth", "u:geheim5"), "NOTYET_HTTP_SIGN_IN_CLIENT_SECRET_FILE=" + file("client", "geheim6"), "NOTYET_HTTP_SIGN_IN_CLIENT_ID=c",
		"NOTYET_HTTP_JWT_ISSUER=https://login.example.com", "NOTYET_HTTP_TOKENS=/t", "NOTYET_HTTP_PUBLIC_URL=http://127.0.0.1:8080",
	}
	cfg, err := Load(Sources{Environ: environ, Require: []string{"mysql.dsn"}})
	require.NoError(t, err)
	require.Equal(t, "u geheim1 u:geheim2@tcp(h:1)/d geheim3 geheim4 u:geheim5 geheim6",
		fmt.Sprint(cfg.Kafka.SASL.User, " ", cfg.Kafka.SASL.Password, " ", cfg.MySQL.DSN, " ", cfg.Redis.Password, " ", cfg.Redis.SentinelPassword, " ", cfg.ZooKeeper.Auth, " ", cfg.HTTP.SignIn.ClientSecret))
	require.Equal(t, filepath.Join(dir, "kafka"), cfg.Origin("kafka.sasl.password"))
	require.NotContains(t, cfg.String(), "geheim")
	require.Contains(t, cfg.String(), "kafka.sasl.user: (hidden)\n")
	require.Contains(t, cfg.String(), "mysql.dsn: u:(hidden)@tcp(h:1)/d\n")

	// Every secret has a file beside it, but for the token of commands, and the databases, whose entries name files.
	for _, f := range fields {
		if f.secret && f.key != "http.token" && f.key != "mysql.shards" {
			_, known := find(fields, f.key+fileSuffix)
			require.True(t, known, f.key)
		}
	}
}

// A key and its file count as one key, and the later source has its way.
func TestTheLaterSourceOfASecret(t *testing.T) {
	dir := t.TempDir()
	password, file := filepath.Join(dir, "password"), filepath.Join(dir, "notyet.yaml")
	require.NoError(t, os.WriteFile(password, []byte("of the file"), 0o600))
	require.NoError(t, os.WriteFile(file, []byte("redis: {password-file: "+password+"}"), 0o600))
	cfg, err := Load(Sources{File: file, Environ: []string{"NOTYET_REDIS_PASSWORD=of the environment"}})
	require.NoError(t, err)
	require.Equal(t, Redis{Password: "of the environment"}, Redis{Password: cfg.Redis.Password, PasswordFile: cfg.Redis.PasswordFile})
	require.NoError(t, os.WriteFile(file, []byte("redis: {password: x}"), 0o600))
	cfg, err = Load(Sources{File: file, Environ: []string{"NOTYET_REDIS_PASSWORD_FILE=" + password}})
	require.NoError(t, err)
	require.Equal(t, "of the file", cfg.Redis.Password)
	cfg, err = Load(Sources{File: file, Environ: []string{"NOTYET_REDIS_PASSWORD_FILE=" + password}, Flags: map[string]string{"redis.password": "of the flag"}})
	require.NoError(t, err)
	require.Equal(t, "of the flag", cfg.Redis.Password)
}

// A file that cannot be read, or a section that is a list, is one mistake: nothing in it is missing.
func TestOneFaultIsOneMistake(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notyet.yaml")
	for text, want := range map[string]string{
		"kafka:\n  brokers: [k:1\nmysql: {dsn: x}":                "--config",
		"mysql:\n  - dsn: x\nkafka: {brokers: k:1}":               "mysql",
		"kafka: {brokers: k:1}\nmysql: {dsn: u@tcp(h:1)/d}\nx: y": "x",
		"kafka: {brokers: k:1}\nmysql: {dsn: }":                   "mysql.dsn",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, problems := Read(Sources{File: file, Environ: []string{}, Require: []string{"kafka.brokers", "mysql.dsn"}})
		require.Len(t, problems, 1, (&Error{problems}).Error())
		require.Equal(t, want, problems[0].Key)
	}
}

func TestMistakesOfSecretFiles(t *testing.T) {
	dir := t.TempDir()
	empty, password := filepath.Join(dir, "empty"), filepath.Join(dir, "password")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(password, []byte("geheim"), 0o600))
	for name, c := range map[string]struct{ env, want []string }{
		"both":                    {[]string{"NOTYET_REDIS_PASSWORD=geheim", "NOTYET_REDIS_PASSWORD_FILE=" + password}, []string{"redis.password (NOTYET_REDIS_PASSWORD)", "redis.password-file exclude each other"}},
		"both, of a DSN":          {[]string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d", "NOTYET_MYSQL_DSN_FILE=" + password}, []string{"mysql.dsn (NOTYET_MYSQL_DSN)", "mysql.dsn-file exclude each other"}},
		"a DSN with a password":   {[]string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d", "NOTYET_MYSQL_PASSWORD_FILE=" + password}, []string{"mysql.dsn (NOTYET_MYSQL_DSN)", "mysql.password-file"}},
		"a password for no DSN":   {[]string{"NOTYET_MYSQL_PASSWORD_FILE=" + password}, []string{"mysql.password-file", "mysql.dsn"}},
		"a password for a file":   {[]string{"NOTYET_MYSQL_DSN=sqlite:x", "NOTYET_MYSQL_PASSWORD_FILE=" + password}, []string{"mysql.password-file", "mysql.dsn"}},
		"the DSN in it is no DSN": {[]string{"NOTYET_MYSQL_DSN_FILE=" + password}, []string{"mysql.dsn (" + password + ")", "cannot be read"}},
		"nothing in it":           {[]string{"NOTYET_REDIS_PASSWORD_FILE=" + empty}, []string{"redis.password-file (NOTYET_REDIS_PASSWORD_FILE)", "nothing in the file"}},
		"no file":                 {[]string{"NOTYET_REDIS_PASSWORD_FILE=/geheim"}, []string{"redis.password-file (NOTYET_REDIS_PASSWORD_FILE)", "no such file"}},
		"a user without SASL":     {[]string{"NOTYET_KAFKA_SASL_USER_FILE=" + password}, []string{"kafka.sasl.mechanism"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, problems := Read(Sources{Environ: c.env})
			err := &Error{problems}
			require.Len(t, problems, 1, err.Error())
			for _, want := range c.want {
				require.Contains(t, err.Error(), want)
			}
			require.NotContains(t, err.Error()+cfg.String(), "geheim")
		})
	}
}
