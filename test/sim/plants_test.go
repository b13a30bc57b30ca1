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
	"sync"
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

// TestPlants puts one mistake at a time into the product, and runs seeds until one fails for an expected reason, and does not fail in the
// product as it is. SIM_PLANTS=1 runs all plants, SIM_PLANTS=part,of,names those; SEEDS is how many seeds each may take, and SEED the first one.
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
	product := sync.OnceValue(func() string { return build(t, nil) })
	asItIs := map[uint64]string{} // what seeds found in the product
	clean := func(seed uint64) bool {
		if _, known := asItIs[seed]; !known {
			one := soil{binary: product(), t: t, finds: func(string) bool { return true }}
			if _, found, err := one.seeds(seed, 1); err != nil {
				asItIs[seed] = err.Error()
			} else if found.invariant != "" {
				asItIs[seed] = found.invariant + ": " + found.what
			} else {
				asItIs[seed] = ""
			}
		}
		if asItIs[seed] != "" {
			t.Logf("seed %d does not count, for it fails without a plant: %s", seed, asItIs[seed])
		}
		return asItIs[seed] == ""
	}
	var table strings.Builder
	for _, p := range all {
		if which != "1" && !slices.ContainsFunc(strings.Split(which, ","), func(part string) bool { return strings.Contains(p.Name, part) }) {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			planted, began := soil{binary: build(t, &p), t: t, finds: p.Finds}, time.Now()
			found, seeds := search(max(first, p.From), n, planted.seeds, clean)
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

// build makes the simulator of a product with a plant; nil: of the product as it is.
func build(t *testing.T, p *plants.Plant) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	binary := filepath.Join(dir, "sim.test")
	args := []string{"test", "-c", "-o", binary}
	if p != nil {
		overlay, err := p.Overlay(root, dir)
		require.NoError(t, err)
		args = append(args, "-overlay", overlay)
	}
	out, err := exec.CommandContext(t.Context(), "go", append(args, ".")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// search runs seeds from first on, until one has a finding that the product as it is does not have.
func search(first, n uint64, planted func(from, n uint64) (at uint64, found foundBy, err error), clean func(seed uint64) bool) (foundBy, uint64) {
	for seed := first; seed < first+n; seed++ {
		at, found, _ := planted(seed, first+n-seed)
		if seed = at; found.invariant != "" && clean(seed) {
			return found, seed - first + 1
		}
	}
	return foundBy{}, n
}

// TestAFindingThatTheProductHasTooIsNotThePlants: nor is one of a seed that fails without the plant in another way.
func TestAFindingThatTheProductHasTooIsNotThePlants(t *testing.T) {
	var tried []uint64
	planted := func(from, n uint64) (uint64, foundBy, error) {
		for seed := from; seed < from+n; seed++ {
			if seed%10 == 3 {
				return seed, foundBy{"I4", "a copy"}, nil
			}
		}
		return from + n - 1, foundBy{}, nil
	}
	clean := func(seed uint64) bool {
		tried = append(tried, seed)
		return seed > 20
	}
	found, seeds := search(1, 200, planted, clean)
	require.Equal(t, foundBy{"I4", "a copy"}, found)
	require.EqualValues(t, 23, seeds)
	require.Equal(t, []uint64{3, 13, 23}, tried)
	found, seeds = search(1, 20, planted, clean)
	require.Equal(t, foundBy{}, found)
	require.EqualValues(t, 20, seeds)
}

// The lines by which a process with a plant says what it does.
const (
	seedMark  = "seed: "
	foundMark = "planted: "
)

// soil runs seeds of a binary in processes of their own: a plant may panic, and it may never end.
type soil struct {
	binary string
	t      *testing.T
	finds  func(invariant string) bool // whether a finding is expected
}

// seeds runs n seeds from one on, until one has a finding that is expected, or none ends in time.
func (s soil) seeds(from, n uint64) (at uint64, found foundBy, err error) {
	t := s.t
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	cmd := exec.CommandContext(ctx, s.binary, "-test.run=^TestPlanted$", "-test.count=1", "-test.timeout=10h")
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
			if s.finds(invariant) {
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
		t.Logf("seed %d did not end well: %v: %s", at, err, panicked)
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
