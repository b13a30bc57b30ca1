package plants

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryPlantStillApplies sees that the product has not moved away under a plant. Whether it compiles is seen where it is run.
func TestEveryPlantStillApplies(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) {
			changed, err := p.Apply("../../..")
			require.NoError(t, err)
			require.NotEmpty(t, changed)
		})
	}
}

// TestEveryPlantCompiles builds the packages of the product with each plant. It takes minutes: make sim-plants builds them anyway.
func TestEveryPlantCompiles(t *testing.T) {
	if os.Getenv("SIM_PLANTS") == "" {
		t.Skip("it takes minutes: set SIM_PLANTS")
	}
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	all, err := All()
	require.NoError(t, err)
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) {
			overlay, err := p.Overlay(root, t.TempDir())
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "./dispatcher", "./scanner", "./callback", "./timer", "./internal/election")
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}

func TestAPlaceThatIsNotThereOnceIsAnError(t *testing.T) {
	for name, place := range map[string]string{"gone": "-func gone() {\n", "twice": "-}\n", "part of a line": "-ackage plants\n"} {
		t.Run(name, func(t *testing.T) {
			p, err := parse("p", "a mistake\nfound as: I1\n--- plants.go\n"+place)
			require.NoError(t, err)
			_, err = p.Apply(".")
			require.ErrorContains(t, err, "instead of once")
		})
	}
}
