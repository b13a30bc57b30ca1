package packages

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// stages returns the stages of the Dockerfile, by name; the last one is "".
func stages(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	out := map[string]string{}
	for _, stage := range regexp.MustCompile(`(?m)^FROM `).Split(string(text), -1)[1:] {
		from, _, _ := strings.Cut(stage, "\n")
		_, name, _ := strings.Cut(from, " AS ")
		out[name] = stage
	}
	return out
}

// The image that is shipped has a base that nobody can exchange, and runs as the user of the chart's pods.
func TestImage(t *testing.T) {
	all := stages(t)
	require.Len(t, all, 3)
	require.Regexp(t, `^gcr\.io/distroless/static-\S+:nonroot@sha256:[0-9a-f]{64}\n`, all[""])
	require.NotContains(t, all[""], "\nRUN ", "there is no shell")
	require.Contains(t, all[""], "\nUSER 65532:65532\n")
	require.Contains(t, all[""], "--chown=65532:65532 /out/lib /var/lib/notyet\n")
	require.Contains(t, all["build"], "GOOS=$TARGETOS GOARCH=$TARGETARCH go build", "one stage builds for every architecture")
	require.Contains(t, all["build"], "cp LICENSE /out/doc && GOOS=$TARGETOS GOARCH=$TARGETARCH scripts/notices >/out/doc/NOTICES")
	for _, shipped := range []string{"", "compose"} {
		require.Contains(t, all[shipped], "\nCOPY --from=build /out/doc /usr/share/doc/notyet\n")
	}
	for _, pod := range decode(t, forms(t)["full"]).pods {
		require.EqualValues(t, 65532, *pod.spec.SecurityContext.RunAsUser)
		require.EqualValues(t, 65532, *pod.spec.SecurityContext.FSGroup)
	}

	text, err := os.ReadFile("../../docker-compose.yml")
	require.NoError(t, err)
	var compose struct {
		Service struct{ Build struct{ Target string } } `json:"x-notyet"`
	}
	require.NoError(t, yaml.Unmarshal(text, &compose))
	require.Contains(t, all, compose.Service.Build.Target)
	require.Contains(t, all[compose.Service.Build.Target], "alpine", "the stack needs a shell and wget")
}
