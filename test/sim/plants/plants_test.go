package plants

import (
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
