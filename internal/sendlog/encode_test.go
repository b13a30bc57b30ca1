package sendlog

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"
)

func encodeBatch(number uint64, at int64, intents []Intent, outcomes []Outcome) []byte {
	b := make([]byte, headerSize)
	if intents != nil {
		b = appendIntents(b, intents)
	} else {
		b = appendOutcomes(b, outcomes)
	}
	fillHeader(b, number, at)
	return b
}

func TestEveryEntryComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		str := rapid.OneOf(rapid.Just(""), rapid.Just("orders"), rapid.String(), rapid.StringN(200, 300, -1))
		intents := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Intent {
			return Intent{
				Seq: rapid.Int64().Draw(t, "seq"), Attempt: rapid.Int32().Draw(t, "attempt"), Slot: rapid.Int32().Draw(t, "slot"),
				Epoch: rapid.Int64().Draw(t, "epoch"), Due: rapid.Int64().Draw(t, "due"),
				Topic: str.Draw(t, "topic"), ID: str.Draw(t, "id"), BodyHash: rapid.Uint64().Draw(t, "hash"),
			}
		}), 1, 20).Draw(t, "intents")
		outcomes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Outcome {
			answer := rapid.IntRange(0, 2).Draw(t, "answer")
			return Outcome{
				Seq: rapid.Int64().Draw(t, "seq"), Attempt: rapid.Int32().Draw(t, "attempt"), Acked: answer == 1, Refused: answer == 2,
				Partition: rapid.Int32().Draw(t, "partition"), Offset: rapid.Int64().Draw(t, "offset"),
				At: rapid.Int64().Draw(t, "at"), Error: str.Draw(t, "error"),
			}
		}), 1, 20).Draw(t, "outcomes")
		number, at := rapid.Uint64().Draw(t, "number"), rapid.Int64().Draw(t, "now")

		var gotIntents []Intent
		var gotOutcomes []Outcome
		collect := func(e Entry) error {
			require.Equal(t, at, e.At)
			if e.Intent != nil {
				gotIntents = append(gotIntents, *e.Intent)
			} else {
				gotOutcomes = append(gotOutcomes, *e.Outcome)
			}
			return nil
		}
		require.NoError(t, decode(number, encodeBatch(number, at, intents, nil), collect))
		require.NoError(t, decode(number, encodeBatch(number, at, nil, outcomes), collect))
		require.Equal(t, intents, gotIntents)
		require.Equal(t, outcomes, gotOutcomes)
	})
}

// Any single flipped bit is noticed.
func TestEveryBitFlipIsNoticed(t *testing.T) {
	good := encodeBatch(7, 8, []Intent{intent(1), intent(2)}, nil)
	ignore := func(Entry) error { return nil }
	require.NoError(t, decode(7, good, ignore))
	require.ErrorIs(t, decode(8, good, ignore), errMalformed, "of another number")
	for i := range len(good) * 8 {
		bad := append([]byte(nil), good...)
		bad[i/8] ^= 1 << (i % 8)
		require.ErrorIs(t, decode(7, bad, ignore), errMalformed, "bit %d", i)
	}
	for n := range good {
		require.ErrorIs(t, decode(7, good[:n], ignore), errMalformed, "cut at %d", n)
	}
}

// What a checksum does not keep out must not crash the reader or make it run
// away either.
func FuzzDecode(f *testing.F) {
	f.Add(encodeBatch(7, 8, []Intent{intent(1), intent(2)}, nil)[headerSize:])
	f.Add(encodeBatch(7, 8, nil, []Outcome{outcome(1), {Error: "e"}, {Error: "e", Offset: math.MinInt64}})[headerSize:])
	f.Fuzz(func(t *testing.T, body []byte) {
		v := append(make([]byte, headerSize), body...)
		fillHeader(v, 7, 8)
		entries := 0
		_ = decode(7, v, func(Entry) error { entries++; return nil })
		if entries > len(body) {
			t.Fatalf("%d entries from %d bytes", entries, len(body))
		}
	})
}

func thousand() []Intent {
	intents := make([]Intent, 1000)
	for i := range intents {
		intents[i] = intent(3<<48 | int64(8_812_345+i))
	}
	return intents
}

func BenchmarkEncodeIntents1000(b *testing.B) {
	intents := thousand()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = appendIntents(append(buf[:0], make([]byte, headerSize)...), intents)
		fillHeader(buf, 1, 2)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/entry")
	b.ReportMetric(float64(len(buf))/1000, "B/entry")
}

func BenchmarkAppendIntents1000(b *testing.B) {
	l, err := Open(b.TempDir(), Config{Retention: time.Hour}, zap.NewNop())
	require.NoError(b, err)
	defer func() { _ = l.Close() }()
	intents := thousand()
	b.ReportAllocs()
	for b.Loop() {
		if err := l.AppendIntents(b.Context(), intents); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/entry")
}
