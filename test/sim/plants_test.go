package sim

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/sim/plants"
)

const (
	plantSeeds    = 200
	plantPatience = 3 * time.Minute // real time for one seed: what takes longer counts as not found
)

type foundBy struct{ invariant, what string }

// TestPlants puts one mistake at a time into the product, and runs seeds until one fails for an expected reason. SIM_PLANTS=1 runs all
// plants, SIM_PLANTS=part,of,names those; SEEDS is how many seeds each may take, and SEED the first one.
func TestPlants(t *testing.T) {
	which := os.Getenv("SIM_PLANTS")
	if which == "" {
		t.Skip("it takes long: make sim-plants")
	}
	all, err := plants.All()
	require.NoError(t, err)
	first, n := uint64(aimedSeeds+1), uint64(plantSeeds)
	setting(t, "SEED", func(v uint64) { first = v })
	setting(t, "SEEDS", func(v uint64) { n = v })
	var table strings.Builder
	for _, p := range all {
		if which != "1" && !slices.ContainsFunc(strings.Split(which, ","), func(part string) bool { return strings.Contains(p.Name, part) }) {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			binary, began := build(t, p), time.Now()
			found, seeds := search(t, binary, p, first, n)
			row := fmt.Sprintf("| %s | %s | %s | %d | %v |", p.Name, p.Mistake, found.invariant, seeds, time.Since(began).Round(time.Second))
			t.Logf("%s %s", row, found.what)
			fmt.Fprintln(&table, row)
			if found.invariant == "" {
				t.Errorf("%d seeds found nothing of %v", n, p.FoundAs)
			}
		})
	}
	fmt.Printf("| plant | mistake | found as | seeds | real time |\n|---|---|---|---|---|\n%s", table.String())
}

// build makes the simulator of a product with a plant.
func build(t *testing.T, p plants.Plant) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	overlay, err := p.Overlay(root, dir)
	require.NoError(t, err)
	binary := filepath.Join(dir, "sim.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// search runs seeds in processes of their own: a plant may panic, and it may never end. A process runs seeds until one has a finding.
func search(t *testing.T, binary string, p plants.Plant, first, n uint64) (foundBy, uint64) {
	t.Helper()
	for seed := first; seed < first+n; seed++ {
		at, found, err := seedsOf(t, binary, p, seed, first+n-seed)
		seed = at
		if found.invariant != "" {
			return found, at - first + 1
		}
		if err != nil {
			t.Logf("seed %d did not end well: %v", at, err)
		}
	}
	return foundBy{}, n
}

// The lines by which a process with a plant says what it does.
const (
	seedMark  = "seed: "
	foundMark = "planted: "
)

// seedsOf runs n seeds from one on, until one has a finding that is expected, or none ends in time.
func seedsOf(t *testing.T, binary string, p plants.Plant, from, n uint64) (at uint64, found foundBy, err error) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	cmd := exec.CommandContext(ctx, binary, "-test.run=^TestPlanted$", "-test.count=1", "-test.timeout=10h")
	cmd.Env = append(os.Environ(), "SIM_PLANTED=1", "SEED="+strconv.FormatUint(from, 10), "SEEDS="+strconv.FormatUint(n, 10))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	patience := time.AfterFunc(plantPatience, end)
	at = from
	var panicked string
	lines := bufio.NewScanner(out)
	for lines.Buffer(nil, 64<<20); lines.Scan(); {
		line := lines.Text()
		if text, ok := strings.CutPrefix(line, seedMark); ok {
			patience.Reset(plantPatience)
			at, err = strconv.ParseUint(text, 10, 64)
			require.NoError(t, err)
		}
		if text, ok := strings.CutPrefix(line, foundMark); ok {
			invariant, what, _ := strings.Cut(text, ": ")
			if p.Finds(invariant) {
				found = foundBy{invariant, what}
				end()
				break
			}
			t.Logf("seed %d found something else: %s", at, text)
		}
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			panicked = line
		}
	}
	if err = cmd.Wait(); found.invariant != "" {
		return at, found, nil
	}
	if err != nil {
		return at, found, fmt.Errorf("%w: %s", err, panicked)
	}
	return from + n - 1, found, nil
}

// TestPlanted runs seeds from SEED on, and writes what each finds.
func TestPlanted(t *testing.T) {
	if os.Getenv("SIM_PLANTED") == "" {
		t.Skip("TestPlants calls it")
	}
	first, n := uint64(1), uint64(1)
	setting(t, "SEED", func(v uint64) { first = v })
	setting(t, "SEEDS", func(v uint64) { n = v })
	for seed := first; seed < first+n; seed++ {
		fmt.Println(seedMark + strconv.FormatUint(seed, 10))
		for _, f := range runSeed(t, drawn(seed)).Findings {
			fmt.Println(foundMark + strings.ReplaceAll(f.String(), "\n", " "))
		}
	}
}
