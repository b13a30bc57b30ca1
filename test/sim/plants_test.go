//go:build faultpoints

package sim

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/faultpoint"
)

// plants are mistakes of the past and the invariants by which the simulator is to find each when its fix is taken away.
var plants = []struct {
	fix  faultpoint.Fix
	find []string
}{
	{faultpoint.NothingBehindFailure, []string{"I1"}},
	{faultpoint.ReleasedWhenDrained, []string{"I4", "I5"}},
	{faultpoint.ReportOfDelivery, []string{"I8"}},
	{faultpoint.DoubtIsSent, []string{"I1"}},
	{faultpoint.RefusedAlone, []string{"I1", "I12"}},
	{faultpoint.SettledInPieces, []string{"I12"}},
	{faultpoint.ResultsApart, []string{"I12"}},
	{faultpoint.ClaimedAhead, []string{"spin"}},
	{faultpoint.CountedOnce, []string{"leak"}},
	{faultpoint.RetiredToTheLast, []string{"growth"}},
	{faultpoint.RoomForOthers, []string{"I12", "I13"}},
	{faultpoint.JudgedByPartition, []string{"I12", "I13"}},
}

const (
	plantSeeds    = 200
	plantPatience = 3 * time.Minute // real time for one seed: what takes longer counts as not found
)

// TestPlants takes away one fix at a time, and runs seeds 1, 2, 3 … until one fails for the expected reason. SIM_PLANTS=1 runs all,
// SIM_PLANTS=part,of,names those; SEEDS is how many seeds each may take.
func TestPlants(t *testing.T) {
	which := os.Getenv("SIM_PLANTS")
	if which == "" {
		t.Skip("it takes long: make sim-plants")
	}
	bound := plantSeeds
	setting(t, "SEEDS", func(v uint64) { bound = int(v) })
	var table strings.Builder
	fmt.Fprintf(&table, "%-26s %-10s %6s %12s %s\n", "without", "found as", "seeds", "real time", "the finding")
	for _, p := range plants {
		if which != "1" && !slices.ContainsFunc(strings.Split(which, ","), func(part string) bool { return strings.Contains(string(p.fix), part) }) {
			continue
		}
		t.Run(string(p.fix), func(t *testing.T) {
			began := time.Now()
			for seed := 1; seed <= bound; seed++ {
				if found := planted(t, p.fix, p.find, seed); slices.Contains(p.find, found.invariant) {
					row := fmt.Sprintf("%-26s %-10s %6d %12v seed %d: %s", p.fix, found.invariant, seed, time.Since(began).Round(time.Second), seed, found.what)
					t.Log(row)
					fmt.Fprintln(&table, row)
					return
				}
			}
			fmt.Fprintf(&table, "%-26s %-10s %6d %12v\n", p.fix, "-", bound, time.Since(began).Round(time.Second))
			t.Errorf("%d seeds found nothing of %v", bound, p.find)
		})
	}
	t.Logf("\n%s", table.String())
}

type foundBy struct{ invariant, what string }

const foundMark = "planted: "

// planted runs a seed without a fix, in a process of its own: it may panic, and it may never end.
func planted(t *testing.T, fix faultpoint.Fix, expected []string, seed int) (first foundBy) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), plantPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestWithout$", "-test.count=1", "-test.timeout=1h")
	cmd.Env = append(os.Environ(), "SIM_WITHOUT="+string(fix), "SEED="+strconv.Itoa(seed))
	out, err := cmd.CombinedOutput()
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		_, text, ok := strings.Cut(lines.Text(), foundMark)
		if !ok {
			continue
		}
		invariant, what, _ := strings.Cut(text, ": ")
		found := foundBy{invariant, what}
		if slices.Contains(expected, invariant) {
			return found
		}
		if first.invariant == "" {
			first = found
		}
	}
	switch {
	case first.invariant != "":
		t.Logf("seed %d found something else: %s: %s", seed, first.invariant, first.what)
	case err != nil:
		_, why, _ := bytes.Cut(out, []byte("panic: "))
		t.Logf("seed %d did not end well (%v): %.1000s", seed, err, why)
	}
	return first
}

// TestWithout runs the seed SEED without the fix SIM_WITHOUT, and writes what is found.
func TestWithout(t *testing.T) {
	fix := faultpoint.Fix(os.Getenv("SIM_WITHOUT"))
	if fix == "" {
		t.Skip("TestPlants calls it")
	}
	require.Contains(t, append(slices.Clone(faultpoint.Fixes), "nothing"), fix)
	faultpoint.TakeAway(fix)
	setting(t, "SEED", func(seed uint64) {
		out := runSeed(t, drawn(seed))
		fmt.Println(out.Plan)
		for _, f := range out.Findings {
			fmt.Println(foundMark + f.String())
		}
		if os.Getenv("SIM_STORY") != "" {
			fmt.Println(out.Story)
		}
	})
}
