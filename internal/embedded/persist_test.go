package embedded_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/embedded"
)

// The test binary serves as a broker process of its own, to be killed.
const serveEnv = "EMBEDDED_TEST_SERVE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveEnv); dir != "" {
		serve(dir)
	}
	os.Exit(m.Run())
}

func serve(dir string) {
	k, err := embedded.StartKafka(embedded.Config{Addr: "127.0.0.1:0", DataDir: dir, Topics: []embedded.Topic{{Name: "made"}}}, zap.NewNop())
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println(k.Addr())
	select {}
}

func spawn(t *testing.T, dir string) (cmd *exec.Cmd, firstLine string) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return cmd, strings.TrimSpace(line)
}

// kill -9 loses nothing that was acknowledged: records, also of topics that were
// created on first use, and committed offsets.
func TestEverythingSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	const records = 200
	for round := range 3 {
		cmd, addr := spawn(t, dir)
		c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation())
		require.NoError(t, err)
		t.Cleanup(c.Close)
		for _, topic := range []string{"made", "auto", fmt.Sprintf("auto-%d", round)} {
			produce(t, c, topic, records)
		}
		var offsets kadm.Offsets
		offsets.AddOffset("auto", 0, int64(round+1), -1)
		require.NoError(t, kadm.NewClient(c).CommitAllOffsets(t.Context(), "g", offsets))
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
	}

	k := start(t, embedded.Config{DataDir: dir})
	for topic, want := range map[string]int{"made": 3, "auto": 3, "auto-0": 1, "auto-1": 1, "auto-2": 1} {
		require.Equal(t, 4, partitions(t, k, topic), topic)
		c := client(t, k, kgo.ConsumeTopics(topic))
		require.Len(t, consume(t, c, want*records), want*records, topic)
	}
	committed, err := kadm.NewClient(client(t, k)).FetchOffsets(t.Context(), "g")
	require.NoError(t, err)
	at, ok := committed.Lookup("auto", 0)
	require.True(t, ok)
	require.EqualValues(t, 3, at.At)
}

func TestOneProcessPerDirectory(t *testing.T) {
	dir := t.TempDir()
	k := start(t, embedded.Config{DataDir: dir})
	_, err := embedded.StartKafka(embedded.Config{Addr: "127.0.0.1:0", DataDir: dir}, zap.NewNop())
	require.ErrorIs(t, err, embedded.ErrDataDirLocked)
	require.ErrorContains(t, err, dir)
	_, answer := spawn(t, dir)
	require.Contains(t, answer, "in use by another process")
	k.Close()
	start(t, embedded.Config{DataDir: dir})
}

// A port that is taken must not leave the directory locked.
func TestFailedStartUnlocks(t *testing.T) {
	dir := t.TempDir()
	other := start(t, embedded.Config{})
	_, err := embedded.StartKafka(embedded.Config{Addr: other.Addr(), DataDir: dir}, zap.NewNop())
	require.ErrorContains(t, err, "is in use")
	start(t, embedded.Config{DataDir: dir})
}

func TestTopicsOfAnotherStartAreLeftAsTheyAre(t *testing.T) {
	dir := t.TempDir()
	k := start(t, embedded.Config{DataDir: dir, Topics: []embedded.Topic{{Name: "notyet.intake", Partitions: 2}}})
	k.Close()
	k = start(t, embedded.Config{DataDir: dir, Topics: []embedded.Topic{{Name: "notyet.intake", Partitions: 8}, {Name: "new"}}})
	require.Equal(t, 2, partitions(t, k, "notyet.intake"))
	require.Equal(t, 4, partitions(t, k, "new"))
}
