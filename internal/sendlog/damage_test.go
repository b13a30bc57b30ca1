package sendlog

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

func TestNothingAcknowledgedIsLostByKill(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Config{})
	for i := range int64(50) {
		appendOne(t, l, i)
		if i%10 != 0 {
			continue
		}
		after := mustOpen(t, copyDir(t, dir), Config{})
		seqs, err := replayed(t, after, time.Time{})
		require.NoError(t, err)
		require.Len(t, seqs, int(i)+1)
		appendOne(t, after, 1000)
	}
}

// Only what was synced is there after a power failure, and that is everything
// that an append returned for.
func TestNothingAcknowledgedIsLostByPowerFailure(t *testing.T) {
	dir := t.TempDir()
	mem := vfs.NewCrashableMem()
	l := mustOpen(t, dir, Config{fs: mem})
	for i := range int64(30) {
		appendOne(t, l, i)
	}
	require.NoError(t, l.db.Flush())
	for i := range int64(30) {
		appendOne(t, l, 30+i)
	}
	crashed := mem.CrashClone(vfs.CrashCloneCfg{})

	// pebble's files are in memory at the same path; only lock and watermark are real.
	require.NoError(t, l.Close())
	after := mustOpen(t, dir, Config{fs: crashed})
	seqs, err := replayed(t, after, time.Time{})
	require.NoError(t, err)
	require.Len(t, seqs, 60)
}

// A batch that was torn by a crash was never acknowledged: it is gone without a
// complaint. The watermark of a real crash is not ahead of it, either.
func TestTornTailIsNoDamage(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Config{})
	for i := range int64(10) {
		appendOne(t, l, i)
	}
	crashed := copyDir(t, dir)
	wal := newest(t, crashed, ".log")
	content, err := os.ReadFile(wal)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(wal, content[:lastWritten(content)-20], 0o644))
	w, err := openWatermark(crashed + "/watermark")
	require.NoError(t, err)
	require.NoError(t, w.set(9)) // batch 10 was being written
	require.NoError(t, w.close())

	after := mustOpen(t, crashed, Config{})
	seqs, err := replayed(t, after, time.Time{})
	require.NoError(t, err)
	require.Len(t, seqs, 9)
	appendOne(t, after, 77)
	seqs, err = replayed(t, after, time.Time{})
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 77}, seqs)
}

// lastWritten skips what pebble preallocated.
func lastWritten(content []byte) int {
	n := len(content)
	for n > 0 && content[n-1] == 0 {
		n--
	}
	return n
}

// A flipped bit in the write-ahead log makes pebble drop everything behind it
// without a word. Ours says what is missing, gives out no number twice, and
// keeps saying it.
func TestBitFlipInTheWriteAheadLogIsAGap(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Config{})
	for i := range int64(5) {
		appendOne(t, l, i)
	}
	wal := newest(t, dir, ".log")
	intact, err := os.ReadFile(wal)
	require.NoError(t, err)
	flipped := lastWritten(intact) // within batch 6
	for i := range int64(5) {
		appendOne(t, l, 5+i)
	}
	crashed := copyDir(t, dir)
	wal = newest(t, crashed, ".log")
	content, err := os.ReadFile(wal)
	require.NoError(t, err)
	content[flipped+30] ^= 0x10
	require.NoError(t, os.WriteFile(wal, content, 0o644))

	after := mustOpen(t, crashed, Config{})
	for round := range 2 {
		seqs, err := replayed(t, after, time.Time{})
		var damage *DamageError
		require.ErrorAs(t, err, &damage)
		require.Equal(t, []Gap{{6, 10}}, damage.Gaps)
		require.Empty(t, damage.Corrupt)
		if round == 0 {
			require.Equal(t, []int64{0, 1, 2, 3, 4}, seqs)
			appendOne(t, after, 100)
			require.NoError(t, after.Close())
			after = mustOpen(t, crashed, Config{})
			continue
		}
		require.Equal(t, []int64{0, 1, 2, 3, 4, 100}, seqs, "what follows the gap is read")
	}
	require.NoError(t, after.prune(time.Now().Add(time.Hour)))
	_, err = replayed(t, after, time.Time{})
	require.NoError(t, err, "until it is pruned")
}

func TestMissingBatchIsAGap(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Config{})
	for i := range int64(9) {
		appendOne(t, l, i)
	}
	for _, number := range []uint64{1, 4, 5, 9} {
		require.NoError(t, l.db.Delete(batchKey(number), pebble.Sync))
	}
	seqs, err := replayed(t, l, time.Time{})
	var damage *DamageError
	require.ErrorAs(t, err, &damage)
	require.Equal(t, []Gap{{1, 1}, {4, 5}, {9, 9}}, damage.Gaps)
	require.Equal(t, []int64{1, 2, 5, 6, 7}, seqs)
	require.ErrorContains(t, err, "batches 4 to 5 are missing")
}

func TestCorruptBatchIsReportedAndTheRestIsRead(t *testing.T) {
	l := mustOpen(t, t.TempDir(), Config{})
	for i := range int64(6) {
		appendOne(t, l, i)
		require.NoError(t, l.AppendOutcomes(t.Context(), []Outcome{outcome(i)}))
	}
	get := func(number uint64) []byte {
		v, closer, err := l.db.Get(batchKey(number))
		require.NoError(t, err)
		defer closer.Close()
		return append([]byte(nil), v...)
	}
	flipped := get(4)
	flipped[len(flipped)-1] ^= 1
	for number, value := range map[uint64][]byte{
		4:  flipped,
		5:  get(7),       // the value of another number
		8:  get(8)[:10],  // cut inside the header
		11: get(11)[:30], // cut behind it
		12: nil,
	} {
		require.NoError(t, l.db.Set(batchKey(number), value, pebble.Sync))
	}
	acked, err := l.Acked(t.Context(), time.Time{}, every)
	var damage *DamageError
	require.ErrorAs(t, err, &damage)
	require.Equal(t, []uint64{4, 5, 8, 11, 12}, damage.Corrupt)
	require.Empty(t, damage.Gaps)
	require.Equal(t, map[Proof]Outcome{proof(0): outcome(0), proof(4): outcome(4)}, acked, "the intent of 2 is damaged")
}

// The same for damage that pebble notices first: a table on disk.
func TestBitFlipInATable(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, Config{})
	const batches = 40
	intents := make([]Intent, 1000)
	for i := range int64(batches) {
		for j := range intents {
			intents[j] = intent(i*1000 + int64(j))
			intents[j].ID = fmt.Sprintf("%x", intents[j].BodyHash)
		}
		require.NoError(t, l.AppendIntents(t.Context(), intents))
	}
	require.NoError(t, l.db.Flush())
	require.NoError(t, l.Close())

	table := newest(t, dir, ".sst")
	content, err := os.ReadFile(table)
	require.NoError(t, err)
	content[len(content)/2] ^= 0x04
	require.NoError(t, os.WriteFile(table, content, 0o644))

	l = mustOpen(t, dir, Config{})
	read := 0
	err = l.Replay(t.Context(), time.Time{}, func(Entry) error { read++; return nil })
	var damage *DamageError
	require.ErrorAs(t, err, &damage)
	require.NotEmpty(t, damage.Corrupt)
	require.Equal(t, batches*len(intents), read+len(damage.Corrupt)*len(intents), "all but the damaged ones")
	appendOne(t, l, 1)
}
