package copies

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/internal/kafka"
)

func TestOnlyWhatIsThereIsEvidence(t *testing.T) {
	at := func(offset int64) map[string]map[int32]kafka.Committed {
		return map[string]map[int32]kafka.Committed{"intake": {3: {At: offset}}}
	}
	for name, c := range map[string]struct {
		committed map[string]map[int32]kafka.Committed
		stored    kafka.Offsets
		want      []Partition
	}{
		"it has less":                       {at(180), kafka.Offsets{"intake": {3: 120}}, []Partition{{"intake", 3, 120, 180}}},
		"it has all":                        {at(180), kafka.Offsets{"intake": {3: 180}}, nil},
		"commits are late":                  {at(180), kafka.Offsets{"intake": {3: 4000}}, nil},
		"nothing is committed":              {nil, kafka.Offsets{"intake": {3: 120}}, nil},
		"the database does not know it":     {at(180), kafka.Offsets{"intake": {2: 120}}, nil},
		"an intake is no longer configured": {at(180), kafka.Offsets{"intake": {3: 180}, "before": {3: 5}}, nil},
		"one of two": {map[string]map[int32]kafka.Committed{"b": {0: {At: 8}}, "a": {1: {At: 9}, 0: {At: 7}}},
			kafka.Offsets{"b": {0: 7}, "a": {0: 7, 1: 0}}, []Partition{{"a", 1, 0, 9}, {"b", 0, 7, 8}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, behind(c.committed, c.stored)) })
	}
}

// A step is a look at some second: b found the database behind, c found it clear, w found it clear and requests that wait, "-" had no
// answer.
func TestVerdict(t *testing.T) {
	type step struct {
		at    time.Duration
		look  byte
		holds bool
	}
	s := time.Second
	for name, c := range map[string]struct {
		fresh bool
		steps []step
	}{
		"a start, all is well":                     {true, []step{{0, 'c', false}, {2 * s, 'c', false}}},
		"a start, behind":                          {true, []step{{0, 'b', true}, {2 * s, '-', true}, {99 * s, 'b', true}}},
		"a start without an answer":                {true, []step{{2 * s, '-', true}, {4 * s, '-', true}, {6 * s, '-', true}, {8 * s, '-', true}, {10 * s, '-', false}, {12 * s, 'b', false}, {13 * s, 'b', true}}},
		"a paused process has asked once":          {true, []step{{2 * s, '-', true}, {9999 * s, '-', true}, {10001 * s, 'b', true}}},
		"at work, one look is no evidence":         {false, []step{{0, 'b', false}, {s, 'c', false}, {2 * s, 'b', false}}},
		"at work, two looks are":                   {false, []step{{0, 'b', false}, {s, 'b', true}}},
		"no answer between the two":                {false, []step{{0, 'b', false}, {s, '-', false}, {3 * s, 'b', true}}},
		"no answer at work":                        {false, []step{{0, '-', false}, {2 * s, '-', false}, {900 * s, '-', false}}},
		"over, and 5 s more":                       {true, []step{{0, 'b', true}, {2 * s, 'c', true}, {4 * s, 'c', true}, {7 * s, 'c', false}, {9 * s, 'b', false}}},
		"over, and requests are decided first":     {true, []step{{0, 'b', true}, {2 * s, 'w', true}, {7 * s, 'w', true}, {8 * s, 'w', true}, {9 * s, 'c', false}}},
		"set back again meanwhile":                 {true, []step{{0, 'b', true}, {2 * s, 'c', true}, {4 * s, 'b', true}, {6 * s, 'c', true}, {8 * s, 'c', true}, {11 * s, 'c', false}}},
		"no answer while it holds, however long":   {true, []step{{0, 'b', true}, {2 * s, '-', true}, {999 * s, '-', true}, {1000 * s, 'c', true}, {1005 * s, 'c', false}}},
		"no answer at its end":                     {true, []step{{0, 'b', true}, {2 * s, 'c', true}, {9 * s, '-', true}, {11 * s, 'c', false}}},
		"a look at last, after it went on without": {true, []step{{2 * s, '-', true}, {4 * s, '-', true}, {6 * s, '-', true}, {8 * s, '-', true}, {10 * s, '-', false}, {60 * s, 'c', false}}},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdict{fresh: c.fresh}
			for _, step := range c.steps {
				switch step.look {
				case 'b':
					v.answered([]Partition{{"intake", 3, 120, 180}}, 0, step.at)
				case 'c':
					v.answered(nil, 0, step.at)
				case 'w':
					v.answered(nil, 7, step.at)
				default:
					v.silent(true)
				}
				require.Equal(t, step.holds, v.holds(), "at %v", step.at)
				require.LessOrEqual(t, v.rest(step.at), every)
				require.GreaterOrEqual(t, v.rest(step.at), again)
			}
		})
	}
}

// watched is a Watch over a broker, and a database that the test sets.
type watched struct {
	*Watch
	*testing.T
	cluster  *kfake.Cluster
	admin    *kadm.Client
	lines    *observer.ObservedLogs
	life     atomic.Pointer[string]
	next     atomic.Int64
	failing  atomic.Bool
	waits    atomic.Int64
	endless  atomic.Bool // a look at what waits does not end in time
	anew     atomic.Int32
	looks    atomic.Int64
	released atomic.Int64
	broken   atomic.Pointer[string] // how the network is, if it is
}

// conn is a connection of the watch to its broker.
type conn struct {
	net.Conn
	w *watched
}

func (c conn) Write(b []byte) (int, error) {
	switch how := c.w.broken.Load(); {
	case how == nil:
		return c.Conn.Write(b)
	case *how == "silent":
		return len(b), nil
	}
	return 0, errors.New("away")
}

// breaks has Kafka not answer, until the end is called.
func (w *watched) breaks(f fault) (end func()) {
	if f.network != "" {
		w.broken.Store(&f.network)
		return func() { w.broken.Store(nil) }
	}
	return w.cluster.Fault(kfake.Fault{Keys: f.keys, Err: f.err, Count: -1}).Remove
}

type fault struct {
	network string
	keys    []kmsg.Key
	err     *kerr.Error
}

func watching(t *testing.T, test func(w *watched)) {
	synctest.Test(t, func(t *testing.T) {
		var network kfake.VirtualNetwork
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.SeedTopics(4, "intake", "reports"))
		require.NoError(t, err)
		defer cluster.Close()
		w := &watched{T: t, cluster: cluster}
		dial := func(ctx context.Context, net, host string) (net.Conn, error) {
			c, err := network.DialContext(ctx, net, host)
			return conn{c, w}, err
		}
		client, err := kafka.New(kafka.Config{Brokers: []string{"127.0.0.1:9092"}, Dial: dial}, zap.NewNop())
		require.NoError(t, err)
		defer client.Close()
		core, lines := observer.New(zap.InfoLevel)
		w.admin, w.lines = kadm.NewClient(client), lines
		w.begins("first")
		w.Watch = New(Config{Client: client, Group: "scanners", Topics: []string{"intake", "reports", "gone"}, Log: zap.New(core),
			Released: func() { w.released.Add(1) },
			Waits: func(ctx context.Context, anew bool) (int, error) {
				if anew {
					w.anew.Add(1)
				}
				if w.endless.Load() {
					<-ctx.Done()
				}
				return int(w.waits.Load()), ctx.Err()
			},
			Database: func(context.Context) (Stand, error) {
				w.looks.Add(1)
				if w.failing.Load() {
					return Stand{}, errors.New("away")
				}
				return Stand{Life: *w.life.Load(), Stored: kafka.Offsets{"intake": {3: w.next.Load()}}}, nil
			}})
		test(w)
	})
}

func (w *watched) begins(life string) { w.life.Store(&life) }

func (w *watched) commit(offset int64) {
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "intake", Partition: 3, At: offset, Metadata: "mine"})
	require.NoError(w, w.admin.CommitAllOffsets(w.Context(), "scanners", offsets))
}

// runs runs it for as long as the test is.
func (w *watched) runs(during func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Watch.Run(ctx) }()
	during()
	cancel()
	<-done
}

func (w *watched) after(d time.Duration, holds bool, why string) {
	w.Helper()
	time.Sleep(d)
	synctest.Wait()
	require.Equal(w, holds, w.Holds(), why)
	require.Equal(w, holds, w.Ready() != nil)
}

func TestWatch(t *testing.T) {
	watching(t, func(w *watched) {
		require.True(t, w.Holds(), "before the first look")
		w.commit(180)
		w.next.Store(120)
		w.runs(func() {
			w.after(10*time.Millisecond, true, "it is behind")
			require.ErrorContains(t, w.Ready(), "behind: intake/3 at 120 of 180")
			require.Equal(t, 1, w.lines.FilterMessageSnippet("older than").Len())
			w.after(2*time.Minute+time.Second, true, "it stays behind")
			require.Equal(t, 3, w.lines.FilterMessageSnippet("older than").Len(), "one line a minute")
			w.next.Store(180)
			w.after(5900*time.Millisecond, true, "what waits is decided")
			require.EqualValues(t, 1, w.anew.Load(), "what comes later is not waited for")
			w.after(200*time.Millisecond, false, "5 s after a look")
			require.EqualValues(t, 1, w.released.Load())

			w.next.Store(150) // under a running process
			w.after(2600*time.Millisecond, true, "two looks have said so")
			w.next.Store(180)
			w.after(8*time.Second, false, "it has caught up")
			require.EqualValues(t, 2, w.released.Load())
			before := w.looks.Load()
			w.after(time.Minute, false, "nothing happens")
			require.LessOrEqual(t, w.looks.Load()-before, int64(31))
		})
	})
}

// Nothing of this is evidence: an installation that was not restored never stands.
func TestNoFalseAlarm(t *testing.T) {
	for name, fault := range map[string]fault{
		"Kafka is away":              {network: "away"},
		"Kafka is silent":            {network: "silent"},
		"its coordinator is away":    {keys: []kmsg.Key{kmsg.FindCoordinator, kmsg.OffsetFetch}, err: kerr.CoordinatorNotAvailable},
		"its coordinator loads":      {keys: []kmsg.Key{kmsg.OffsetFetch}, err: kerr.CoordinatorLoadInProgress},
		"no right to see the group":  {keys: []kmsg.Key{kmsg.OffsetFetch}, err: kerr.GroupAuthorizationFailed},
		"no right to see the topics": {keys: []kmsg.Key{kmsg.Metadata}, err: kerr.TopicAuthorizationFailed},
	} {
		t.Run(name, func(t *testing.T) {
			watching(t, func(w *watched) {
				w.commit(180)
				w.next.Store(120)
				mend := w.breaks(fault)
				w.runs(func() {
					w.after(7*time.Second, true, "it asks for 10 s")
					w.after(5*time.Second, false, "it goes on without an answer")
					require.Equal(t, 1, w.lines.FilterMessageSnippet("Describe").Len())
					require.Nil(t, w.Life())
					w.after(time.Minute, false, "and does not ask in vain again")
					require.Equal(t, 1, w.lines.Len(), "one warning")
					mend()
					w.after(30*time.Second, true, "what is seen in the end counts")
				})
			})
			watching(t, func(w *watched) {
				w.commit(180)
				w.next.Store(180)
				w.runs(func() {
					w.after(time.Second, false, "all is well")
					defer w.breaks(fault)()
					for range 60 {
						w.after(time.Second, false, "nobody says otherwise")
					}
					require.Zero(t, w.lines.Len())
				})
			})
		})
	}
	t.Run("no group, no offset, no topic", func(t *testing.T) {
		watching(t, func(w *watched) {
			w.next.Store(120)
			w.runs(func() { w.after(10*time.Millisecond, false, "at once"); w.after(time.Minute, false, "never") })
			require.Zero(t, w.lines.Len())
		})
	})
	t.Run("the database is away at work", func(t *testing.T) {
		watching(t, func(w *watched) {
			w.commit(180)
			w.next.Store(180)
			w.runs(func() {
				w.after(time.Second, false, "all is well")
				w.failing.Store(true)
				w.after(time.Minute, false, "it is not behind")
			})
		})
	})
	t.Run("scanners store and commit meanwhile", func(t *testing.T) {
		watching(t, func(w *watched) {
			w.runs(func() {
				for i := range int64(200) {
					w.next.Store(10 * i)
					w.commit(10 * i)
					w.after(73*time.Millisecond, false, "what is committed is stored")
				}
			})
		})
	})
}

// A database in a new life may be an older copy: the first look there counts, and until then nothing is claimed.
func TestANewLife(t *testing.T) {
	watching(t, func(w *watched) {
		w.commit(180)
		w.next.Store(180)
		w.runs(func() {
			w.after(time.Second, false, "all is well")
			first := w.Life()
			require.Equal(t, "first", *first)
			w.begins("second")
			w.Renew(first)
			require.True(t, w.Holds())
			w.after(10*time.Millisecond, false, "the look came at once")
			require.Equal(t, "second", *w.Life())
			w.Renew(first)
			require.False(t, w.Holds(), "that life has been looked at")

			w.begins("third")
			w.next.Store(120)
			w.after(2*time.Second, true, "nobody had to ask, and one look is enough")
			w.next.Store(180)
			w.after(9*time.Second, false, "caught up")

			w.failing.Store(true)
			w.begins("fourth")
			w.Renew(w.Life())
			w.after(7*time.Second, true, "no answer yet")
			w.after(4*time.Second, false, "it goes on")
			require.Nil(t, w.Life(), "whatever life it is")
		})
	})
}

// Kafka is silent when a new life begins: nothing can be sent to it, and the hold outlasts that. Who is refused an answer goes on soon.
func TestASilentKafkaInANewLife(t *testing.T) {
	for name, c := range map[string]struct {
		fault
		holds time.Duration
	}{
		"silent":                {fault{network: "silent"}, 55 * time.Second},
		"away":                  {fault{network: "away"}, 55 * time.Second},
		"its coordinator loads": {fault{keys: []kmsg.Key{kmsg.OffsetFetch}, err: kerr.CoordinatorLoadInProgress}, 55 * time.Second},
		"no right":              {fault{keys: []kmsg.Key{kmsg.OffsetFetch}, err: kerr.GroupAuthorizationFailed}, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			watching(t, func(w *watched) {
				w.commit(180)
				w.next.Store(180)
				w.runs(func() {
					w.after(time.Second, false, "all is well")
					mend := w.breaks(c.fault)
					w.begins("second")
					w.next.Store(120)
					w.Renew(w.Life())
					w.after(c.holds, true, "no answer yet")
					w.after(10*time.Second, false, "not for ever")
					mend()
					w.after(30*time.Second, true, "what is seen in the end counts")

					w.next.Store(180)
					w.after(9*time.Second, false, "caught up")
					mend = w.breaks(c.fault)
					w.begins("third")
					w.next.Store(120)
					w.Renew(w.Life())
					w.after(min(c.holds, 25*time.Second), true, "no answer yet")
					mend()
					w.after(20*time.Second, true, "and then it is behind")
				})
			})
		})
	}
}

// A hold may be over, and nobody says so: the next look is not at once.
func TestUnansweredAtTheEndOfAHold(t *testing.T) {
	watching(t, func(w *watched) {
		w.commit(180)
		w.next.Store(120)
		w.runs(func() {
			w.after(10*time.Millisecond, true, "it is behind")
			w.next.Store(180)
			w.after(4*time.Second, true, "it has caught up")
			w.failing.Store(true)
			before := w.looks.Load()
			time.AfterFunc(time.Minute, func() { w.failing.Store(false) })
			for range 60 {
				w.after(time.Second-time.Microsecond, true, "no answer yet")
				require.LessOrEqual(t, w.looks.Load()-before, int64(130), "it asks too often")
			}
			w.after(3*time.Second, false, "it is over")
		})
	})
}

// Requests that waited for a slot are decided first, if they ever are.
func TestSettle(t *testing.T) {
	watching(t, func(w *watched) {
		w.runs(func() {
			w.after(time.Second, false, "all is well")
			w.Settle()
			w.after(time.Millisecond, false, "none waits")
			w.waits.Store(1)
			w.after(time.Minute, false, "nobody has taken a slot")
			w.Settle()
			require.True(t, w.Holds())
			w.after(3*time.Second, true, "one waits")
			require.EqualValues(t, 2, w.anew.Load(), "what comes later is not waited for")
			w.waits.Store(0)
			w.after(600*time.Millisecond, false, "it is decided")
			w.waits.Store(1)
			w.Settle()
			w.after(15*time.Second, true, "nobody decides it")
			w.after(10*time.Second, false, "it holds nobody for ever")
			w.Settle()
			w.failing.Store(true)
			w.after(25*time.Second, false, "and likewise without an answer")
			w.failing.Store(false)

			w.waits.Store(100)
			w.Settle()
			for range 12 {
				w.after(10*time.Second, true, "they become fewer")
				w.waits.Add(-1)
			}
			w.after(25*time.Second, false, "they do not any more")
			w.Settle()
			for range 40 {
				time.Sleep(10 * time.Second)
				w.waits.Add(-1)
			}
			w.after(0, false, "nor does it wait for 7 minutes")
		})
	})
}

// So many requests wait that a look at them does not end in time: it ends no hold, and keeps none up.
func TestMoreWaitThanALookSees(t *testing.T) {
	watching(t, func(w *watched) {
		w.commit(180)
		w.next.Store(120)
		w.endless.Store(true)
		w.runs(func() {
			w.after(time.Second, true, "it is behind")
			w.next.Store(180)
			w.after(20*time.Second, true, "cancels may wait")
			w.after(20*time.Second, false, "it is over")
			w.Settle()
			w.after(15*time.Second, true, "cancels may wait")
			w.after(15*time.Second, false, "it is over")
			require.Zero(t, w.lines.FilterMessageSnippet("Describe").Len(), "Kafka has answered")
		})
	})
}

func TestNilWatch(t *testing.T) {
	var w *Watch
	w.Ask()
	w.Settle()
	w.Run(t.Context())
	w.Renew(nil)
	require.False(t, w.Holds())
	require.NoError(t, w.Ready())
	require.Nil(t, w.Life())
}

// What the group has noted beside its offsets can be read.
func TestNotes(t *testing.T) {
	watching(t, func(w *watched) {
		w.commit(180)
		got, err := kafka.GroupOffsets(w.Context(), w.cfg.Client, "scanners", "intake", "gone")
		require.NoError(t, err)
		require.Equal(t, map[string]map[int32]kafka.Committed{"intake": {3: {At: 180, Note: "mine"}}}, got)
	})
}
