package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notyet.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func load(t *testing.T, yaml string, environ []string, flags map[string]string) (*Config, error) {
	t.Helper()
	s := Sources{Environ: append([]string{"PATH=/bin"}, environ...), Flags: flags}
	if yaml != "" {
		s.File = write(t, yaml)
	}
	return Load(s)
}

func TestNothingSetIsValid(t *testing.T) {
	cfg, err := load(t, "", nil, nil)
	require.NoError(t, err)
	want := Default()
	want.inherit()
	want.set, want.unread = map[string]Origin{}, map[string]bool{}
	require.Equal(t, &want, cfg)
	limits, ok := cfg.Limits("notyet.intake")
	require.True(t, ok)
	require.Equal(t, schemas.DefaultMaxDelay, limits.MaxDelay)
	require.Equal(t, []string{"notyet.intake", "notyet.reports", "notyet.cancels", "notyet.results"}, limits.InternalTopics)
	_, ok = cfg.Limits("orders")
	require.False(t, ok)
}

func TestPrecedence(t *testing.T) {
	yaml := "kafka:\n  brokers: [file:1]\nhttp:\n  addr: file:1\nslots: 8\n"
	cfg, err := load(t, yaml, []string{"NOTYET_HTTP_ADDR=env:2", "NOTYET_SLOTS=9"}, map[string]string{"slots": "10"})
	require.NoError(t, err)
	require.Equal(t, []string{"file:1"}, cfg.Kafka.Brokers)
	require.Equal(t, "env:2", cfg.HTTP.Addr)
	require.Equal(t, 10, cfg.Slots)
}

func TestEveryVariableOfTheContract(t *testing.T) {
	cfg, err := load(t, "", []string{
		"NOTYET_KAFKA_BROKERS=a:1, b:2,", "NOTYET_MYSQL_DSN=u:p@tcp(h:3306)/d", "NOTYET_REDIS_ADDRS=r:1",
		"NOTYET_ZOOKEEPER_SERVERS=z1:1,z2:2", "NOTYET_HTTP_ADDR=:80", "NOTYET_INTAKE_TOPICS=in.a,in.b", "NOTYET_DISPATCHER_LOOK_AHEAD=2s",
		"NOTYET_DISPATCHER_STAGE_BYTES=1GiB", "NOTYET_HTTP_PPROF=true", "NOTYET_KAFKA_CLIENT_ID=",
	}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:2"}, cfg.Kafka.Brokers)
	require.Equal(t, "u:p@tcp(h:3306)/d", cfg.MySQL.DSN)
	require.Equal(t, []string{"r:1"}, cfg.Redis.Addrs)
	require.Equal(t, []string{"z1:1", "z2:2"}, cfg.ZooKeeper.Servers)
	require.Equal(t, ":80", cfg.HTTP.Addr)
	require.Equal(t, []string{"in.a", "in.b"}, cfg.IntakeNames())
	require.Equal(t, 2*time.Second, cfg.Dispatcher.LookAhead)
	require.Equal(t, Size(1<<30), cfg.Dispatcher.StageBytes)
	require.True(t, cfg.HTTP.Pprof)
	require.Equal(t, "notyet", cfg.Kafka.ClientID, "an empty variable sets nothing")
}

func TestNoTwoKeysShareAVariable(t *testing.T) {
	seen := map[string]string{}
	for _, key := range Keys() {
		require.Empty(t, seen[EnvName(key)], "%s has the variable of another", key)
		seen[EnvName(key)] = key
	}
}

func TestIntakesInheritWhatTheyLeaveOut(t *testing.T) {
	cfg, err := load(t, `
intake:
  max-delay: 48h
  allowed-targets: [orders.*]
  topics:
    - plain
    - topic: special
      allowed-targets: [bills, "bills.*"]
      max-delay: 1h
      max-value-bytes: 2KiB
`, nil, nil)
	require.NoError(t, err)
	plain, _ := cfg.Limits("plain")
	require.Equal(t, schemas.Limits{MaxDelay: 48 * time.Hour, MaxValueBytes: 1 << 20, AllowedTargets: []string{"orders.*"}, InternalTopics: cfg.OwnTopics()}, plain)
	special, _ := cfg.Limits("special")
	require.Equal(t, schemas.Limits{MaxDelay: time.Hour, MaxValueBytes: 2048, AllowedTargets: []string{"bills", "bills.*"}, InternalTopics: cfg.OwnTopics()}, special)
}

func TestAnIntakeCanHaveAQuota(t *testing.T) {
	cfg, err := load(t, "intake: {requests-per-second: 50, topics: [plain, {topic: special, requests-per-second: 1000}]}", nil, nil)
	require.NoError(t, err)
	require.Equal(t, 50, cfg.Intake.Topics[0].RequestsPerSecond)
	require.Equal(t, 1000, cfg.Intake.Topics[1].RequestsPerSecond)
	require.Zero(t, Default().Intake.Topics[0].RequestsPerSecond)
	for _, wrong := range []string{"0", "-1", "1000001", "1.5", "many"} {
		_, err := load(t, "intake: {topics: [plain, {topic: special, requests-per-second: "+wrong+"}]}", nil, nil)
		require.ErrorContains(t, err, "requests-per-second", wrong)
		require.ErrorContains(t, err, "intake.topics", wrong)
		_, err = load(t, "intake: {requests-per-second: "+wrong+"}", nil, nil)
		require.ErrorContains(t, err, "intake.requests-per-second", wrong)
	}
	_, err = load(t, "intake: {topics: [{topic: a, requests-per-sec: 5}]}", nil, nil)
	require.ErrorContains(t, err, "did you mean requests-per-second?")
}

func TestAnIntakeCanHaveQuotasOfWhatIsPending(t *testing.T) {
	cfg, err := load(t, "intake: {pending-tasks: 1000, pending-bytes: 1GiB, topics: [plain, {topic: special, pending-tasks: 5, max-value-bytes: 2KiB, pending-bytes: 2KiB}]}", nil, nil)
	require.NoError(t, err)
	require.Equal(t, 1000, cfg.Intake.Topics[0].PendingTasks)
	require.Equal(t, Size(1<<30), cfg.Intake.Topics[0].PendingBytes)
	require.Equal(t, 5, cfg.Intake.Topics[1].PendingTasks)
	require.Equal(t, Size(2048), cfg.Intake.Topics[1].PendingBytes)
	for wrong, want := range map[string]string{
		"pending-tasks: 0": "pending-tasks", "pending-tasks: 1000000001": "write pending-tasks: 1 to 1000000000", "pending-tasks: many": "pending-tasks",
		"pending-bytes: 0": "pending-bytes", "pending-bytes: 2TiB": "pending-bytes", "pending-bytes: 1000KiB": "write pending-bytes: 1048576 to",
		"pending-bytes: 4MiB, max-value-bytes: 8MiB": "write pending-bytes: 8388608 to",
	} {
		_, err := load(t, "intake: {topics: [plain, {topic: special, "+wrong+"}]}", nil, nil)
		require.ErrorContains(t, err, want, wrong)
		_, err = load(t, "intake: {"+wrong+"}", nil, nil)
		require.ErrorContains(t, err, want, wrong)
	}
	_, err = load(t, "intake: {pending-bytes: 2MiB, topics: [{topic: special, max-value-bytes: 3MiB}]}", nil, nil)
	require.ErrorContains(t, err, "special, pending-bytes: 2097152")
}

func TestAnIntakeHasAQuotaOfUnknownTargets(t *testing.T) {
	cfg, err := load(t, "intake: {topics: [plain, {topic: special, unknown-targets: 5}]}", nil, nil)
	require.NoError(t, err)
	require.Equal(t, []int{100, 5}, []int{cfg.Intake.Topics[0].UnknownTargets, cfg.Intake.Topics[1].UnknownTargets})
	cfg, err = load(t, "intake: {unknown-targets: 7}", nil, nil)
	require.NoError(t, err)
	require.Equal(t, 7, cfg.Intake.Topics[0].UnknownTargets)
	for _, wrong := range []string{"0", "-1", "10001", "many", "", "null"} {
		_, err := load(t, "intake: {topics: [plain, {topic: special, unknown-targets: "+wrong+"}]}", nil, nil)
		require.ErrorContains(t, err, "unknown-targets", wrong)
		_, err = load(t, "intake: {unknown-targets: "+wrong+"}", nil, nil)
		require.ErrorContains(t, err, "intake.unknown-targets", wrong)
	}
	_, err = load(t, "intake: {unknown-targets: 7, beyond: wait}", nil, nil)
	require.ErrorContains(t, err, "means nothing without a quota", "that one always rejects")
}

func TestAnIntakeCanRejectWhatIsBeyondItsQuotas(t *testing.T) {
	cfg, err := load(t, "intake: {beyond: reject, topics: [plain, {topic: special, pending-tasks: 5}, {topic: other, pending-tasks: 5, beyond: wait}]}", nil, nil)
	require.NoError(t, err)
	for i, want := range []string{BeyondReject, BeyondReject, BeyondWait} {
		require.Equal(t, want, cfg.Intake.Topics[i].Beyond)
	}
	for wrong, want := range map[string]string{
		"{pending-tasks: 5, beyond: drop}": "write wait or reject",
		"{beyond: reject}":                 "add requests-per-second, pending-tasks or pending-bytes, or remove beyond",
		"{topics: [{topic: a, requests-per-second: 5, beyond: Reject}]}": "a, beyond: Reject",
		"{topics: [{topic: a, beyond: wait}]}":                           "means nothing without a quota",
	} {
		_, err := load(t, "intake: "+wrong, nil, nil)
		require.ErrorContains(t, err, want, wrong)
	}
}

func TestAnIntakeCanHaveATargetOfItsOwn(t *testing.T) {
	cfg, err := load(t, `
intake:
  allowed-targets: [bills.*]
  topics:
    - plain
    - {topic: orders.later, target: orders}
`, nil, nil)
	require.NoError(t, err)
	l, _ := cfg.Limits("orders.later")
	require.Equal(t, "orders", l.Target)
	require.Equal(t, []string{"orders"}, l.AllowedTargets, "the common patterns are for the others")
	l, _ = cfg.Limits("plain")
	require.Empty(t, l.Target)
	require.Equal(t, []string{"bills.*"}, l.AllowedTargets)
	all := settingsOf(cfg)
	require.Equal(t, "orders", all["intake.topics[orders.later].target"].Value)
	require.Equal(t, FromFile, all["intake.topics[orders.later].allowed-targets"].Source)

	cfg, err = load(t, "intake:\n  topics: [{topic: orders.later, target: orders}]\n", nil, nil)
	require.NoError(t, err)
	require.Empty(t, cfg.Unrestricted(), "its target restricts it")
}

func TestMistakes(t *testing.T) {
	signIn := []string{"NOTYET_HTTP_SIGN_IN_CLIENT_ID=c", "NOTYET_HTTP_SIGN_IN_CLIENT_SECRET=geheim", "NOTYET_HTTP_JWT_ISSUER=https://login.example.com", "NOTYET_HTTP_TOKENS=/t"}
	for name, c := range map[string]struct {
		yaml  string
		env   []string
		flags map[string]string
		want  []string // each is in the error
	}{
		"unknown key":            {yaml: "kafka:\n  broker: x\n", want: []string{"kafka.broker ", "is unknown", "did you mean kafka.brokers?"}},
		"unknown variable":       {env: []string{"NOTYET_KAFKA_BROKER=x"}, want: []string{"NOTYET_KAFKA_BROKER", "did you mean NOTYET_KAFKA_BROKERS?"}},
		"unknown flag":           {flags: map[string]string{"slot": "3"}, want: []string{"slot (flag)", "did you mean slots?"}},
		"a value for a section":  {yaml: "kafka: x\n", want: []string{"kafka (", "is a section"}},
		"not a duration":         {env: []string{"NOTYET_WINDOW=2 hours"}, want: []string{"window (NOTYET_WINDOW)", `"2 hours"`, "write a duration"}},
		"not a number":           {env: []string{"NOTYET_SLOTS=many"}, want: []string{"slots (NOTYET_SLOTS)", `"many"`, "write a whole number"}},
		"not a size":             {env: []string{"NOTYET_DISPATCHER_STAGE_BYTES=1GB"}, want: []string{`"1GB"`, "KiB, MiB or GiB"}},
		"not a bool":             {yaml: "http:\n  pprof: perhaps\n", want: []string{"http.pprof", "write true or false"}},
		"out of range":           {env: []string{"NOTYET_SLOTS=5000"}, want: []string{`"5000"`, "write 1 to 4096"}},
		"address without a port": {env: []string{"NOTYET_HTTP_ADDR=localhost"}, want: []string{"http.addr (NOTYET_HTTP_ADDR)", "host:port"}},
		"broker as URL":          {env: []string{"NOTYET_KAFKA_BROKERS=kafka://a:9092"}, want: []string{"kafka.brokers", "kafka://a:9092", "write host:port"}},
		"DSN without a database": {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/"}, want: []string{"mysql.dsn", "names no database"}},
		"several Redis":          {env: []string{"NOTYET_REDIS_ADDRS=a:1,b:2"}, want: []string{"redis.addrs", "set redis.cluster or redis.master"}},
		"an intake's typo":       {yaml: "intake:\n  topics:\n    - {topic: a, max-dely: 1h}\n", want: []string{"entry 1", "did you mean max-delay?"}},
		"an origin as target":    {yaml: "intake:\n  topics:\n    - {topic: a, target: 'https://shop.example'}\n", want: []string{"intake.topics", "https://shop.example", "write allowed-targets"}},
		"an internal target":     {yaml: "intake:\n  topics:\n    - {topic: a, target: notyet.results}\n", want: []string{"notyet.results", "name a topic of your own"}},
		"a target misspelt":      {yaml: "intake:\n  topics:\n    - {topic: a, target: 'b c'}\n", want: []string{"1 problem(s)", `"b c"`, "is not a topic name"}},
		"a target and patterns":  {yaml: "intake:\n  topics:\n    - {topic: a, target: b, allowed-targets: [c]}\n", want: []string{`"b"`, "remove one of the two"}},
		"a target in a variable": {env: []string{"NOTYET_INTAKE_TOPICS={topic: a, target: b}"}, want: []string{"intake.topics (NOTYET_INTAKE_TOPICS)", "is not a topic name"}},
		"a value too large":      {yaml: "intake:\n  max-value-bytes: 9MiB\n", want: []string{"intake.max-value-bytes", `"9437184"`, "write 1 to 8388608"}},
		"a time below zero":      {env: []string{"NOTYET_DISPATCHER_UNDELIVERABLE_AFTER=-1s"}, want: []string{"dispatcher.undeliverable-after", "write a duration such as 1m, or 0s to try once"}},
		"one topic's value":      {yaml: "intake:\n  topics:\n    - {topic: a, max-value-bytes: 8388609}\n", want: []string{"intake", `"a"`, "at most 8388608 are possible"}},
		"a bad pattern":          {yaml: "intake:\n  allowed-targets: ['[']\n", want: []string{"intake", "checking allowed target"}},
		"one topic twice":        {env: []string{"NOTYET_RESULTS_TOPIC=notyet.intake"}, want: []string{"notyet.intake", "named twice"}},
		"metrics without tokens": {yaml: "metrics: {need-token: true}\n", want: []string{"metrics.need-token", "needs http.tokens"}},
		"metrics elsewhere":      {yaml: "metrics: {need-token: true}\nhttp: {tokens: /t}\nops: {addr: ':9090'}\n", want: []string{"metrics.need-token", "ops.addr"}},
		"a bad metrics target":   {env: []string{"NOTYET_METRICS_TARGETS=orders,https://shop.example/x,a b"}, want: []string{"metrics.targets", "https://shop.example/x", "is not the origin", `"a b"`, "is not a topic name"}},
		"too many targets":       {env: []string{"NOTYET_METRICS_TARGETS=" + strings.Repeat("a,", 200) + "a"}, want: []string{"metrics.targets", "201", "name at most 200"}},
		"too many top targets":   {env: []string{"NOTYET_METRICS_TOP_TARGETS=201"}, want: []string{"metrics.top-targets", "write 1 to 200"}},
		"a bad topic":            {env: []string{"NOTYET_INTAKE_TOPICS=a b"}, want: []string{"intake.topics", `"a b"`, "is not a topic name"}},
		"SASL without user":      {env: []string{"NOTYET_KAFKA_SASL_MECHANISM=PLAIN"}, want: []string{"kafka.sasl.user", "NOTYET_KAFKA_SASL_USER"}},
		"a host as URL":          {env: []string{"NOTYET_HTTP_HOSTS=https://a.example"}, want: []string{"http.hosts (NOTYET_HTTP_HOSTS)", "without scheme"}},
		"an issuer over http":    {env: []string{"NOTYET_HTTP_JWT_ISSUER=http://login.example.com"}, want: []string{"http.jwt.issuer (NOTYET_HTTP_JWT_ISSUER)", "is not https", "http.jwt.audience", "http.tokens", "{topics, group, role}"}},
		"an issuer that is none": {env: []string{"NOTYET_HTTP_JWT_ISSUER=https://u:geheim@login.example.com", "NOTYET_HTTP_JWT_AUDIENCE=a", "NOTYET_HTTP_TOKENS=/t"}, want: []string{"1 problem(s)", "http.jwt.issuer", "write one such as"}},
		"keys for ever":          {yaml: "http: {tokens: /t, jwt: {issuer: 'https://login.example.com', audience: a, keys-max-age: 169h}}\n", want: []string{"1 problem(s)", "http.jwt.keys-max-age", "write 5m to 168h"}},
		"no claim for groups":    {yaml: "http: {tokens: /t, jwt: {issuer: 'https://login.example.com', audience: a, groups-claim: ''}}\n", want: []string{"1 problem(s)", "http.jwt.groups-claim", "is empty"}},
		"no audience":            {env: []string{"NOTYET_HTTP_JWT_ISSUER=https://login.example.com", "NOTYET_HTTP_TOKENS=/t"}, want: []string{"1 problem(s)", "http.jwt.audience"}},
		"sign-in alone":          {env: []string{"NOTYET_HTTP_SIGN_IN_CLIENT_ID=c"}, want: []string{"3 problem(s)", "http.jwt.issuer", "http.sign-in.client-secret", "client-secret-file", "http.public-url", "/sign-in/callback"}},
		"sign-in over http":      {env: append(signIn, "NOTYET_HTTP_PUBLIC_URL=http://notyet.example"), want: []string{"1 problem(s)", "http.public-url", "write one such as"}},
		"a site with a path":     {env: append(signIn, "NOTYET_HTTP_PUBLIC_URL=https://notyet.example/"), want: []string{"1 problem(s)", "http.public-url", "without a path"}},
		"a scope that is none":   {env: append(signIn, "NOTYET_HTTP_PUBLIC_URL=https://notyet.example", "NOTYET_HTTP_SIGN_IN_SCOPES=a b"), want: []string{"1 problem(s)", "http.sign-in.scopes"}},
		"idle sign-in settings":  {env: []string{"NOTYET_HTTP_SIGN_IN_CLIENT_SECRET=geheim"}, want: []string{"1 problem(s)", "http.sign-in.client-id"}},
		"idle JWT settings":      {env: []string{"NOTYET_HTTP_JWT_AUDIENCE=a"}, want: []string{"1 problem(s)", "http.jwt.issuer", "write the URL"}},
		"idle HTTPS settings":    {env: []string{"NOTYET_HTTP_TLS_CERT=/c.pem"}, want: []string{"http.tls.key", "http.tls.enabled"}},
		"a token in two words":   {env: []string{"NOTYET_HTTP_TOKEN=nyt geheim"}, want: []string{"http.token", "white space"}},
		"health without a port":  {env: []string{"NOTYET_OPS_ADDR=localhost"}, want: []string{"ops.addr (NOTYET_OPS_ADDR)", "host:port"}},
		"idle TLS settings":      {env: []string{"NOTYET_KAFKA_TLS_CA=/ca.pem"}, want: []string{"kafka.tls.enabled"}},
		"unverified TLS":         {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d?parseTime=true&tls=skip-verify"}, want: []string{"mysql.dsn", "set mysql.tls.enabled"}},
		"perhaps no TLS":         {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d?tls=preferred"}, want: []string{"mysql.dsn", "mysql.tls.ca"}},
		"unverified, encoded":    {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d?tls=skip%2Dverify"}, want: []string{"mysql.dsn", "set mysql.tls.enabled"}},
		"unverified, capitals":   {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d?tls=Skip-Verify"}, want: []string{"mysql.dsn", "set mysql.tls.enabled"}},
		"TLS may be turned off":  {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d?allowFallbackToPlaintext=true&allowCleartextPasswords=true", "NOTYET_MYSQL_TLS_ENABLED=true"}, want: []string{"mysql.dsn", "remove allowFallbackToPlaintext"}},
		"its own TLS, likewise":  {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d?tls=true&allowFallbackToPlaintext=1"}, want: []string{"mysql.dsn", "remove allowFallbackToPlaintext"}},
		"TLS off beside on":      {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d?tls=0", "NOTYET_MYSQL_TLS_ENABLED=true"}, want: []string{"mysql.dsn", "beside mysql.tls"}},
		"a password in clear":    {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d?allowCleartextPasswords=true"}, want: []string{"mysql.dsn", "set mysql.tls.enabled"}},
		"an old password":        {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d?allowOldPasswords=1"}, want: []string{"mysql.dsn", "remove allowOldPasswords"}},
		"files for the server":   {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d?allowAllFiles=true"}, want: []string{"mysql.dsn", "remove allowAllFiles"}},
		"two ways to a token":    {env: []string{"NOTYET_KAFKA_SASL_MECHANISM=OAUTHBEARER"}, want: []string{"kafka.sasl.token-file", "kafka.sasl.token-url"}},
		"an endpoint, no client": {env: []string{"NOTYET_KAFKA_SASL_MECHANISM=OAUTHBEARER", "NOTYET_KAFKA_SASL_TOKEN_URL=https://idp/token"}, want: []string{"NOTYET_KAFKA_SASL_USER"}},
		"an endpoint, no secret": {env: []string{"NOTYET_KAFKA_SASL_MECHANISM=OAUTHBEARER", "NOTYET_KAFKA_SASL_TOKEN_URL=https://idp/token", "NOTYET_KAFKA_SASL_USER=u"}, want: []string{"kafka.sasl.password", "OAUTHBEARER"}},
		"a secret in the clear":  {env: []string{"NOTYET_KAFKA_SASL_MECHANISM=OAUTHBEARER", "NOTYET_KAFKA_SASL_TOKEN_URL=http://idp/token", "NOTYET_KAFKA_SASL_USER=u", "NOTYET_KAFKA_SASL_PASSWORD=geheim"}, want: []string{"kafka.sasl.token-url", "https"}},
		"a user in the endpoint": {env: []string{"NOTYET_KAFKA_SASL_MECHANISM=OAUTHBEARER", "NOTYET_KAFKA_SASL_TOKEN_URL=https://u:geheim@idp/token", "NOTYET_KAFKA_SASL_USER=u", "NOTYET_KAFKA_SASL_PASSWORD=geheim"}, want: []string{"kafka.sasl.token-url"}},
		"an endpoint for SCRAM":  {env: []string{"NOTYET_KAFKA_SASL_MECHANISM=SCRAM-SHA-512", "NOTYET_KAFKA_SASL_USER=u", "NOTYET_KAFKA_SASL_TOKEN_URL=https://idp/token"}, want: []string{"kafka.sasl.mechanism", "OAUTHBEARER"}},
		"a session for SCRAM":    {env: []string{"NOTYET_KAFKA_SASL_MECHANISM=SCRAM-SHA-512", "NOTYET_KAFKA_SASL_USER=u", "NOTYET_KAFKA_SASL_SESSION_TOKEN=geheim"}, want: []string{"kafka.sasl.session-token", "AWS_MSK_IAM"}},
		"a key without a secret": {env: []string{"NOTYET_KAFKA_SASL_MECHANISM=AWS_MSK_IAM", "NOTYET_KAFKA_SASL_USER=AKIA"}, want: []string{"kafka.sasl.password", "AWS_MSK_IAM"}},
		"a token, no mechanism":  {env: []string{"NOTYET_KAFKA_SASL_TOKEN_URL=https://idp/token"}, want: []string{"kafka.sasl.mechanism", "OAUTHBEARER"}},
		"migrate elsewhere":      {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d", "NOTYET_MIGRATE_DSN=admin:geheim@tcp(h:1)/other"}, want: []string{"migrate.dsn", "another database"}},
		"migrate, unverified":    {env: []string{"NOTYET_MIGRATE_DSN=admin:geheim@tcp(h:1)/d?tls=skip-verify"}, want: []string{"migrate.dsn", "set mysql.tls.enabled"}},
		"a sentinel's password":  {env: []string{"NOTYET_REDIS_SENTINEL_PASSWORD=geheim"}, want: []string{"redis.sentinel-user", "set redis.master"}},
		"TLS said twice":         {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)/d?tls=true", "NOTYET_MYSQL_TLS_ENABLED=true"}, want: []string{"mysql.dsn", "beside mysql.tls"}},
		"TLS to a file":          {env: []string{"NOTYET_MYSQL_DSN=sqlite:x.db", "NOTYET_MYSQL_TLS_ENABLED=true"}, want: []string{"mysql.tls.enabled", "remove it"}},
		"a certificate alone":    {env: []string{"NOTYET_MYSQL_TLS_ENABLED=true", "NOTYET_MYSQL_TLS_CERT=/c.pem"}, want: []string{"mysql.tls.cert", "mysql.tls.key"}},
		"another election":       {env: []string{"NOTYET_ELECTION_KIND=etcd"}, want: []string{"election.kind", "write one of zookeeper, mysql"}},
		"another index":          {env: []string{"NOTYET_INDEX_KIND=memory"}, want: []string{"index.kind", "write one of redis, mysql"}},
		"wakes over Redis":       {env: []string{"NOTYET_WAKES_TOPIC=w"}, want: []string{"wakes.topic", "set index.kind to mysql"}},
		"wakes among results":    {env: []string{"NOTYET_INDEX_KIND=mysql", "NOTYET_WAKES_TOPIC=notyet.results"}, want: []string{"notyet.results", "named twice"}},
		"a session too short":    {env: []string{"NOTYET_ELECTION_KIND=mysql", "NOTYET_ELECTION_SESSION_TIMEOUT=100ms"}, want: []string{"election.session-timeout", "write 1s to 1m"}},
		"ZooKeeper's, too short": {env: []string{"NOTYET_ZOOKEEPER_SESSION_TIMEOUT=1ms"}, want: []string{"zookeeper.session-timeout", "write 10ms or more"}},
		"ZooKeeper's session":    {env: []string{"NOTYET_ELECTION_KIND=mysql", "NOTYET_ZOOKEEPER_SESSION_TIMEOUT=9s"}, want: []string{"zookeeper.session-timeout", "set election.session-timeout"}},
		"the database's session": {env: []string{"NOTYET_ELECTION_SESSION_TIMEOUT=9s"}, want: []string{"election.session-timeout", "set zookeeper.session-timeout"}},
		"idle ZooKeeper TLS":     {env: []string{"NOTYET_ZOOKEEPER_TLS_CA=/ca.pem"}, want: []string{"zookeeper.tls.enabled"}},
		"ZooKeeper's user alone": {env: []string{"NOTYET_ZOOKEEPER_AUTH=geheim"}, want: []string{"zookeeper.auth", "write user:password"}},
		"no ZooKeeper password":  {env: []string{"NOTYET_ZOOKEEPER_AUTH=geheim:"}, want: []string{"zookeeper.auth"}},
		"a key without a value":  {yaml: "slots:\n", want: []string{"slots (", "has no value", "remove the key"}},
		"hosts commented out":    {yaml: "callback:\n  enabled: true\n  allowed-hosts:\n  # - hooks.example.com\n", want: []string{"callback.allowed-hosts", "has no value"}},
		"targets: null":          {yaml: "intake:\n  allowed-targets: ~\n", want: []string{"intake.allowed-targets", "has no value"}},
		"an intake's, null":      {yaml: "intake:\n  topics:\n    - {topic: a, allowed-targets: }\n", want: []string{"entry 1, allowed-targets"}},
		"no hosts":               {yaml: "callback: {enabled: true, allowed-hosts: []}\n", want: []string{"callback.allowed-hosts", "is empty", "* is every host"}},
		"no ports":               {yaml: "callback: {enabled: true, allowed-ports: []}\n", want: []string{"callback.allowed-ports", "is empty", "* is every port"}},
		"all ports and one":      {yaml: "callback: {allowed-ports: ['*', 443]}\n", want: []string{"callback.allowed-ports", `"*"`, "* alone"}},
		"an empty flag wins":     {yaml: "callback: {allowed-hosts: [a.example]}\n", flags: map[string]string{"callback.allowed-hosts": ""}, want: []string{"callback.allowed-hosts (flag)", "is empty"}},
		"an empty variable":      {yaml: "callback: {allowed-hosts: [a.example]}\n", env: []string{"NOTYET_CALLBACK_ALLOWED_HOSTS="}, want: []string{"callback.allowed-hosts (NOTYET_CALLBACK_ALLOWED_HOSTS)", "is empty"}},
		"targets in a variable":  {env: []string{"NOTYET_INTAKE_ALLOWED_TARGETS= , "}, want: []string{"intake.allowed-targets (NOTYET_INTAKE_ALLOWED_TARGETS)", "is empty"}},
		"an empty quota":         {env: []string{"NOTYET_INTAKE_REQUESTS_PER_SECOND="}, want: []string{"intake.requests-per-second (NOTYET_INTAKE_REQUESTS_PER_SECOND)", "write a whole number"}},
		"an empty size":          {flags: map[string]string{"intake.pending-bytes": ""}, want: []string{"intake.pending-bytes (flag)", "write a number of bytes"}},
		"no tokens":              {env: []string{"NOTYET_HTTP_TOKENS="}, want: []string{"http.tokens (NOTYET_HTTP_TOKENS)", "is empty", "name the file"}},
		"two documents":          {yaml: "slots: 7\n---\nintake: {allowed-targets: [a]}\n", want: []string{"--config", "a second YAML document"}},
		"not YAML":               {yaml: "a: [", want: []string{"--config", "cannot be read"}},
		"all at once": {yaml: "slots: x\nwat: 1\n", env: []string{"NOTYET_LOG_LEVEL=loud", "NOTYET_FOO=1"},
			want: []string{"4 problem(s)", "slots", "wat", "log.level", "NOTYET_FOO"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.yaml, c.env, c.flags)
			var all *Error
			require.ErrorAs(t, err, &all)
			for _, want := range c.want {
				require.Contains(t, err.Error(), want)
			}
			require.NotContains(t, err.Error(), "geheim", "secrets are not repeated")
		})
	}
}

// No value of an unknown or secret key is shown, nor the credentials in a value that stands in the
// wrong place.
func TestMistakesHideSecrets(t *testing.T) {
	for name, c := range map[string]struct {
		yaml  string
		env   []string
		flags map[string]string
	}{
		"mistyped variable":           {env: []string{"NOTYET_MYSQL_DNS=geheim"}},
		"mistyped key":                {yaml: "mysql:\n  dns: u:geheim@tcp(h:1)/d\n"},
		"mistyped flag":               {flags: map[string]string{"kafka.sasl.pasword": "geheim"}},
		"secret for a section":        {yaml: "mysql: u:geheim@tcp(h:1)/d\n"},
		"secret as a mapping":         {yaml: "mysql:\n  dsn: {u:geheim@tcp(h:1)/d}\n"},
		"secret as a nested mapping":  {yaml: "mysql:\n  dsn:\n    geheim: 1\n"},
		"secret as a list":            {yaml: "redis:\n  password: [geheim]\n"},
		"not a mapping at all":        {yaml: "geheim"},
		"not YAML":                    {yaml: "mysql: {dsn: geheim"},
		"DSN: a URL":                  {env: []string{"NOTYET_MYSQL_DSN=mysql://u:geheim@h:3306/d"}},
		"DSN: without a host":         {env: []string{"NOTYET_MYSQL_DSN=u:geheim/d"}},
		"DSN: without a slash":        {env: []string{"NOTYET_MYSQL_DSN=u:geheim@tcp(h:1)"}},
		"DSN: an @ too few":           {env: []string{"NOTYET_MYSQL_DSN=u:geheim(h:1)/d"}},
		"DSN: a bad parameter":        {env: []string{"NOTYET_MYSQL_DSN=u:p@tcp(h:1)/d?timeout=geheim"}},
		"DSN: not a bool":             {env: []string{"NOTYET_MYSQL_DSN=u:p@tcp(h:1)/d?parseTime=geheim"}},
		"Redis as a URL":              {env: []string{"NOTYET_REDIS_ADDRS=redis://u:geheim@h:6379"}},
		"Redis as a URL, parameter":   {env: []string{"NOTYET_REDIS_ADDRS=redis://h:6379?password=geheim"}},
		"brokers with a user":         {env: []string{"NOTYET_KAFKA_BROKERS=u:geheim@h:9092"}},
		"ZooKeeper with a user":       {env: []string{"NOTYET_ZOOKEEPER_SERVERS=u:geheim@h:2181"}},
		"HTTP address with a user":    {env: []string{"NOTYET_HTTP_ADDR=u:geheim@h"}},
		"a DSN where a number stands": {env: []string{"NOTYET_SLOTS=u:geheim@tcp(h:1)/d"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.yaml, c.env, c.flags)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "geheim")
		})
	}
}

func TestUnrestrictedIntakesAreNamed(t *testing.T) {
	cfg, err := load(t, "", []string{"NOTYET_INTAKE_TOPICS=a,b"}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, cfg.Unrestricted())
	cfg, err = load(t, "intake:\n  topics: [a, {topic: b, allowed-targets: [x.*]}, {topic: c, allowed-targets: ['*']}]\n", nil, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, cfg.Unrestricted())
	cfg, err = load(t, "", []string{"NOTYET_INTAKE_ALLOWED_TARGETS=*"}, nil)
	require.NoError(t, err)
	require.Empty(t, cfg.Unrestricted())
	_, err = load(t, "intake:\n  allowed-targets: []\n", nil, nil)
	require.ErrorContains(t, err, "intake.allowed-targets")
	for _, none := range []string{"[]", "''"} {
		_, err = load(t, "intake: {topics: [{topic: b, allowed-targets: "+none+"}]}\n", nil, nil)
		require.ErrorContains(t, err, "entry 1, allowed-targets: it is empty", none)
	}
}

// Open names what a setting could close, and not what somebody has opened by name.
func TestOpenSettings(t *testing.T) {
	const signIn = "http: {tokens: /t, jwt: {issuer: 'https://login.example.com', audience: console}, sign-in: {client-id: console, client-secret: x}, public-url: 'https://n.example'}\n"
	closed := "intake: {allowed-targets: [a]}\n"
	for name, c := range map[string]struct {
		yaml string
		want []string // keys
	}{
		"nothing set":          {"", []string{"intake.allowed-targets"}},
		"one intake of two":    {"intake: {topics: [a, {topic: b, target: c}]}\n", []string{"intake.allowed-targets"}},
		"patterns":             {closed, nil},
		"opened by name":       {"intake: {allowed-targets: ['*']}\ncallback: {enabled: true, allowed-hosts: ['*'], allowed-ports: ['*']}\n", nil},
		"callbacks":            {closed + "callback: {enabled: true}\n", []string{"callback.allowed-hosts", "callback.allowed-ports"}},
		"callbacks, off":       {closed + "callback: {enabled: false}\n", nil},
		"one audience for two": {closed + signIn, []string{"http.jwt.audience"}},
		"tokens in the clear":  {closed + "http: {addr: ':8080', tokens: /t}\n", []string{"http.tls.enabled", "metrics.need-token"}},
		"behind a proxy":       {closed + "http: {addr: ':8080', tokens: /t, public-url: 'https://n.example'}\nops: {addr: ':9090'}\n", nil},
		"by HTTPS":             {closed + "http: {addr: ':8080', tokens: /t, tls: {enabled: true, cert: /c, key: /k}}\nmetrics: {need-token: true}\n", nil},
		"on this machine":      {closed + "http: {addr: '[::1]:8080', tokens: /t}\nredis: {password: x}\nkafka: {sasl: {mechanism: PLAIN, user: u, password: p}}\nzookeeper: {auth: 'u:p'}\n", nil},
		"without tokens":       {closed + "http: {addr: ':8080'}\n", nil},
		"passwords": {closed + "redis: {password: x, addrs: [r]}\nkafka: {brokers: [k], sasl: {mechanism: PLAIN, user: u, password: p}}\nzookeeper: {auth: 'u:p', servers: ['z:2181']}\n",
			[]string{"kafka.tls.enabled", "redis.tls.enabled", "zookeeper.tls.enabled"}},
		"passwords that nobody sends": {closed + "redis: {password: x, addrs: [r]}\nzookeeper: {auth: 'u:p', servers: ['z:2181']}\nelection: {kind: mysql}\nindex: {kind: mysql}\n", nil},
	} {
		cfg, err := load(t, c.yaml, nil, nil)
		require.NoError(t, err, name)
		var keys []string
		for _, p := range cfg.Open() {
			require.NotEmpty(t, p.Fix)
			keys = append(keys, p.Key)
		}
		require.Equal(t, c.want, keys, name)
	}
	cfg, err := load(t, "callback: {allowed-ports: ['*']}\n", nil, nil)
	require.NoError(t, err)
	require.Empty(t, cfg.Callback.Ports(), "every port")
}

func TestFile(t *testing.T) {
	_, err := Load(Sources{File: "/nowhere/at/all.yaml", Environ: []string{}})
	require.ErrorContains(t, err, "does not exist")

	cfg, err := Load(Sources{Environ: []string{"NOTYET_CONFIG=" + write(t, "# only comments\nkafka:\nslots: 7\n")}})
	require.NoError(t, err)
	require.Equal(t, 7, cfg.Slots)
}

func TestWhatKubernetesInjectsIsNoMistake(t *testing.T) {
	_, err := load(t, "", []string{
		"NOTYET_SERVICE_HOST=10.0.0.1", "NOTYET_SERVICE_PORT=80", "NOTYET_SERVICE_PORT_HTTP=80", "NOTYET_PORT=tcp://10.0.0.1:80",
		"NOTYET_PORT_80_TCP=tcp://10.0.0.1:80", "NOTYET_PORT_80_TCP_ADDR=10.0.0.1", "NOTYET_SCANNER_SERVICE_HOST=10.0.0.2", "NOTYET_SCANNER_PORT_80_TCP_PROTO=tcp",
	}, nil)
	require.NoError(t, err)
}

func TestRequireAndIgnore(t *testing.T) {
	_, err := Load(Sources{Environ: []string{"NOTYET_KAFKA_BROKERS=a:1"}, Require: []string{"kafka.brokers", "mysql.dsn", "redis.addrs"}})
	var all *Error
	require.ErrorAs(t, err, &all)
	require.Len(t, all.Problems, 2)
	require.ErrorContains(t, err, "mysql.dsn is not set: set NOTYET_MYSQL_DSN")

	_, err = Load(Sources{Environ: []string{"NOTYET_ELECTION_KIND=mysql", "NOTYET_INDEX_KIND=mysql"}, Require: []string{"zookeeper.servers", "redis.addrs"}})
	require.NoError(t, err, "it does without")

	cfg, err := Load(Sources{Environ: []string{"NOTYET_LOG_FORMAT=json"}, Defaults: map[string]string{"log.level": "warn", "log.format": "console", "mysql.dsn": "sqlite:x"}, Require: []string{"mysql.dsn"}})
	require.ErrorContains(t, err, "mysql.dsn", "a command's default is not the operator's word")
	require.Nil(t, cfg)
	cfg, err = Load(Sources{Environ: []string{"NOTYET_LOG_FORMAT=json", "NOTYET_TEST_X=1"}, Defaults: map[string]string{"log.level": "warn", "log.format": "console"}})
	require.NoError(t, err)
	require.Equal(t, Log{Level: "warn", Format: "json"}, cfg.Log)
	require.True(t, cfg.IsSet("log.format"))
	require.False(t, cfg.IsSet("log.level"))

	cfg, err = Load(Sources{
		File:    write(t, "redis: {addrs: [real:1], prefix: real}\n"),
		Environ: []string{"NOTYET_KAFKA_BROKERS=!!", "NOTYET_HTTP_ADDR=:1"}, Ignore: []string{"kafka.brokers", "redis."},
	})
	require.NoError(t, err)
	require.Equal(t, Default().Redis, cfg.Redis)
	require.Equal(t, ":1", cfg.HTTP.Addr)
}
