package command

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHintsNameTheProgramAsItWasCalled(t *testing.T) {
	for arg0, want := range map[string]string{"notyet": "notyet", "bin/notyet": "bin/notyet", "/usr/bin/notyet": "/usr/bin/notyet", "./other": "./other"} {
		require.Equal(t, want, Called(arg0, "notyet"))
	}
}
