package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// regressions are seeds that have failed once, each for a reason that is mended.
var regressions = []uint64{1, 2, 3, 218, 1002, 3007, 863251567503, 187730883676, 449515481366, 675862539589, 920000285, 960001031, 4398046541578, 16099392943693, 9764727365219, 9048662329896, 260954363223527, 1002270391754777, 2600000000072105, 1331731706387823, 3110029756102688, 3936887520410645, 597325904410059, 3904720738648174, 3940649673950149, 360183132038342, 290474976810758, 4222842302660029, 4222842302660033, 4222842302660002, 8703768069247345, 7045412372173561, 7045412372173564, 7045412372173546}

// underRace is set where the race detector is on. With it the Go runtime itself has crashed in virtual time (SIGSEGV in a timer of a
// bubble, Go 1.26.8), so scripts/test runs the simulator without it.
var underRace bool

// TestMain lets garbage grow, up to a bound: seeds are short, and each leaves some 100 MB of it.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(1 << 30)
	os.Exit(m.Run())
}

// runSeed is one seed from start to verdict.
func runSeed(t *testing.T, p plan) (out Outcome) {
	t.Helper()
	dir, err := os.MkdirTemp(memory(), "notyet-sim")
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	for n := range p.several + 1 {
		_, err = template(p.slots, n)
		require.NoError(t, err)
	}
	var pulse atomic.Int64
	defer watch(p.seed, pulse.Load)()
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(p, dir, &pulse)
		require.NoError(t, err)
		out = w.run()
	})
	return out
}

// total is what all seeds of a test came to.
type total struct {
	seeds, requests, faults, calls, failed int
	busiest, linear, undecided, remembered int
	virtual                                time.Duration
	began                                  time.Time
}

func (s *total) run(t *testing.T, p plan) {
	t.Helper()
	t.Run(fmt.Sprint(p.seed), func(t *testing.T) {
		out := runSeed(t, p)
		s.seeds++
		s.requests += out.Requests
		s.faults += out.Faults
		s.calls += out.Calls
		s.linear += out.Linear
		s.undecided += out.Undecided
		s.remembered += out.Remembered
		s.busiest = max(s.busiest, out.Busiest)
		s.virtual += out.Virtual
		if len(out.Findings) > 0 {
			s.failed++
			t.Errorf("run it again: make sim SEED=%d\n%s", p.seed, out.Story)
		}
	})
}

func (s *total) print(t *testing.T) {
	t.Helper()
	took := time.Since(s.began)
	t.Logf("%d seeds in %v (%v each), %d failed: %.1f virtual hours, %d requests, %d faults, %d database calls, at most %d calls of one server by one process in a virtual second, %d identities with an order that explains them, %d without a verdict, %d answers that a database forgot and Kafka did not; per second: %.1f seeds, %.0f virtual seconds, %.0f requests, %.1f faults",
		s.seeds, took.Round(time.Millisecond), (took / time.Duration(max(s.seeds, 1))).Round(time.Millisecond), s.failed, s.virtual.Hours(), s.requests, s.faults, s.calls, s.busiest, s.linear, s.undecided, s.remembered,
		float64(s.seeds)/took.Seconds(), s.virtual.Seconds()/took.Seconds(), float64(s.requests)/took.Seconds(), float64(s.faults)/took.Seconds())
}

// TestRegressions runs the seeds that once found something: the first three, and with NOTYET_LONG=1 all, which takes two minutes.
func TestRegressions(t *testing.T) {
	if underRace {
		t.Skip("without the race detector only: see underRace")
	}
	all := total{began: time.Now()}
	seeds := regressions
	if os.Getenv("NOTYET_LONG") == "" {
		seeds = seeds[:3]
	}
	for _, seed := range seeds {
		all.run(t, drawn(seed))
	}
	all.print(t)
}

// TestSeveralDatabases runs seeds in which targets move: two, and with NOTYET_LONG=1 twenty, and six in which a database forgets. Those of the
// gate have none.
func TestSeveralDatabases(t *testing.T) {
	if underRace {
		t.Skip("without the race detector only: see underRace")
	}
	all, n := total{began: time.Now()}, 2
	if os.Getenv("NOTYET_LONG") != "" {
		n = 20
	}
	for seed := uint64(severalSeeds); all.seeds < n; seed++ {
		if p := drawn(seed); p.several > 0 {
			all.run(t, p)
		}
	}
	for seed := uint64(forgetfulSeeds); n > 2 && all.seeds < n+6; seed++ {
		if p := drawn(seed); p.forgetful.lost > 0 {
			all.run(t, p)
		}
	}
	all.print(t)
}

// TestSeeds runs seeds that nobody has seen: SEED=n one of them, SEEDS=n so many from there or from anywhere, SIM_FOR=1h as
// many as go into that. SIM_SETBACKS=no leaves those out in which the database forgets, as scripts/test does: about one in 200 of them finds
// a rule that the judges lack, and a gate that is red by chance is none. For the same reason its seeds are below regimeSeeds.
func TestSeeds(t *testing.T) {
	if os.Getenv("SEED")+os.Getenv("SEEDS")+os.Getenv("SIM_FOR") == "" {
		t.Skip("make sim searches: set SEED, SEEDS or SIM_FOR")
	}
	first, n, bound := regimeSeeds+rand.Uint64N(regimeSeeds), 1<<30, time.Hour
	gate := os.Getenv("SIM_SETBACKS") == "no"
	if gate {
		first = setbackSeeds + rand.Uint64N(regimeSeeds-setbackSeeds)
	}
	if text := os.Getenv("SIM_FOR"); text != "" {
		var err error
		bound, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	setting(t, "SEED", func(v uint64) { first, n, bound = v, 1, time.Hour })
	setting(t, "SEEDS", func(v uint64) { n, bound = int(v), 24*time.Hour })
	t.Logf("seeds from %d on", first)
	all := total{began: time.Now()}
	for seed := first; seed < first+uint64(n) && time.Since(all.began) < bound && all.failed < 5; seed++ {
		if p := drawn(seed); p.setback.lost == 0 || !gate {
			all.run(t, p)
		}
	}
	all.print(t)
}

func setting(t *testing.T, name string, use func(uint64)) {
	t.Helper()
	if text := os.Getenv(name); text != "" {
		v, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, name)
		use(v)
	}
}

// A seed that keeps all but one thing well draws nothing else that its judges are not told of, such as a quota.
func TestWellSeeds(t *testing.T) {
	well := 0
	for seed := uint64(returnSeeds); seed < returnSeeds+1000; seed++ {
		p := drawn(seed)
		if p.logCut.yes || p.older.yes || p.rehearsal.yes || p.setback.restored.beside != besideNobody {
			well++
			require.Empty(t, p.scanner.Quotas, seed)
			require.Empty(t, p.scanner.Intake, seed)
		}
	}
	require.Positive(t, well)
}
