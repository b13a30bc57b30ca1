//go:build faultpoints

package sim

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/notyet/notyet/internal/faultpoint"
)

// TestPlaces counts how often seeds pass each place of the crash table. A place that no seed passes is a hole in the load.
func TestPlaces(t *testing.T) {
	if os.Getenv("SIM_PLACES") == "" {
		t.Skip("it takes minutes: make sim-places")
	}
	first, n := uint64(aimedSeeds+1), uint64(100)
	setting(t, "SEED", func(v uint64) { first = v })
	setting(t, "SEEDS", func(v uint64) { n = v })
	var mu sync.Mutex
	passed, seeds := map[string]int{}, map[string]map[uint64]bool{}
	seed := first
	faultpoint.Watch(func(name string) {
		mu.Lock()
		defer mu.Unlock()
		passed[name]++
		if seeds[name] == nil {
			seeds[name] = map[uint64]bool{}
		}
		seeds[name][seed] = true
	})
	for ; seed < first+n; seed++ {
		runSeed(t, drawn(seed))
	}
	fmt.Println("| place | passings | seeds |\n|---|---|---|")
	for _, r := range faultpoint.Rows {
		fmt.Printf("| %s | %d | %d of %d |\n", r.Name, passed[r.Name], len(seeds[r.Name]), n)
		if passed[r.Name] == 0 {
			t.Errorf("%d seeds never pass %s (%s)", n, r.Name, r.After)
		}
	}
}
