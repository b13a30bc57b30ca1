package timer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// refused is the count of an expression that Debian's cron does not take.
const refused = 1<<32 - 1

// TestDebiansCronAgrees: random expressions run when Debian's cron, its own reader and its own loop,
// starts their jobs, minute by minute, around changes of the clocks. DEBIAN_CRON_DIR is the folder of
// scripts/debian-cron; with NOTYET_LONG=1 there are 20,000 expressions.
func TestDebiansCronAgrees(t *testing.T) {
	source, each := os.Getenv("DEBIAN_CRON_DIR"), 100
	if source == "" {
		t.Skip("DEBIAN_CRON_DIR is not set: scripts/debian-cron prints it")
	}
	if os.Getenv("NOTYET_LONG") != "" {
		each = 2223
	}
	program := filepath.Join(t.TempDir(), "debiancron")
	build := exec.Command("gcc", "-O2", "-w", "-DDEBUGGING=0", "-I"+source, "-o", program, "testdata/debiancron.c")
	for _, file := range []string{"entry.c", "misc.c", "env.c", "compat.c"} {
		build.Args = append(build.Args, filepath.Join(source, file))
	}
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	// Each change of these is one that cron looks for: between five minutes and three hours.
	for i, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Europe/Dublin", "America/Havana", "America/St_Johns", "Antarctica/Troll", "Africa/Casablanca", "Asia/Kolkata"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng, z := rand.New(rand.NewPCG(uint64(i), 3)), zone(t, name)
			at := time.Date(2026+rng.IntN(11), time.Month(1+rng.IntN(12)), 1, 0, 0, 0, 0, z)
			for range 2 {
				if _, change := at.ZoneBounds(); !change.IsZero() {
					at = change
				}
				expressions := make([]string, (each+1)/2)
				for i := range expressions {
					expressions[i] = crontabLine(rng, at)
				}
				compareWithDebian(t, program, z, at.Add(-36*time.Hour).Truncate(time.Minute), at.Add(200*time.Hour).Truncate(time.Minute), expressions)
			}
		})
	}
}

func compareWithDebian(t *testing.T, program string, z *time.Location, from, to time.Time, expressions []string) {
	t.Helper()
	cron := exec.Command(program, strconv.FormatInt(from.Unix()/60, 10), strconv.FormatInt(to.Unix()/60, 10))
	cron.Env, cron.Stdin, cron.Stderr = []string{"TZ=" + z.String()}, strings.NewReader(strings.Join(expressions, "\n")+"\n"), os.Stderr
	out, err := cron.Output()
	require.NoError(t, err)
	jobs := bytes.NewReader(out)
	runs := 0
	for _, expression := range expressions {
		var count uint32
		require.NoError(t, binary.Read(jobs, binary.NativeEndian, &count))
		require.NotEqual(t, uint32(refused), count, "%q: Debian's cron refuses it", expression)
		minutes := make([]uint32, count)
		require.NoError(t, binary.Read(jobs, binary.NativeEndian, &minutes))
		want := make([]int64, count)
		for i, minute := range minutes {
			want[i] = int64(minute) * 60
		}
		var got []int64
		s, err := New(Definition{Cron: expression, Zone: z.String(), From: from.UnixMilli() + 1})
		if err != nil {
			require.ErrorContains(t, err, "never comes", expression)
		} else {
			for run, ok := s.Next(0); ok && run < to.UnixMilli(); run, ok = s.Next(run) {
				got = append(got, run/1000)
			}
		}
		if !slices.Equal(want, got) {
			t.Fatalf("%q in %s from %v to %v: %d runs, Debian's cron has %d; %s", expression, z, from, to, len(got), len(want), firstDifference(want, got, z))
		}
		runs += len(got)
	}
	require.NotZero(t, jobs.Size())
	require.Zero(t, jobs.Len())
	require.Greater(t, runs, len(expressions), "most of them run")
}

// crontabLine draws an expression of everything that Debian's cron takes and runs, and often one that
// runs about an instant. A list that has a star behind its first item is left out: Debian's cron looks
// at a field's first character, the contract at the field.
func crontabLine(rng *rand.Rand, about time.Time) string {
	names := func(i, value int) string {
		if f := fieldsOfCron[i]; f.names != nil && rng.IntN(2) == 0 && value-f.min < len(f.names) {
			return f.names[value-f.min]
		}
		return strconv.Itoa(value)
	}
	step := func(i int) string {
		f := fieldsOfCron[i]
		return "/" + strconv.Itoa(1+rng.IntN(f.max-f.min+8))
	}
	field := func(i, near int) string {
		f, items := fieldsOfCron[i], []string{}
		for n := range 1 + rng.IntN(3)*rng.IntN(2) {
			value := f.min + rng.IntN(f.max-f.min+1)
			if rng.IntN(2) == 0 {
				value = f.min + (near-f.min+rng.IntN(3)-1+f.max-f.min+1)%(f.max-f.min+1)
			}
			switch kind := rng.IntN(6); {
			case kind == 0 && n == 0:
				items = append(items, "*")
			case kind == 1 && n == 0:
				items = append(items, "*"+step(i))
			case kind == 2:
				items = append(items, names(i, value)+"-"+names(i, value+rng.IntN(f.max-value+1)))
			case kind == 3:
				items = append(items, names(i, value)+"-"+names(i, value+rng.IntN(f.max-value+1))+step(i))
			default:
				items = append(items, names(i, value))
			}
		}
		return strings.Join(items, ",")
	}
	month := "*"
	if rng.IntN(3) == 0 {
		month = field(4, int(about.Month()))
	}
	day, weekday := field(3, about.Day()), field(5, int(about.Weekday()))
	switch rng.IntN(4) {
	case 0:
		day = "*"
	case 1:
		weekday = "*"
	}
	return fmt.Sprintf("%s %s %s %s %s", field(1, rng.IntN(60)), field(2, about.Hour()), day, month, weekday)
}
