package watching

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const runbooks = "../../docs/runbooks"

// parts are the headings of every runbook, in order.
var parts = []string{"Meaning", "Look", "Do", "Over"}

// Whoever is woken by an alert finds its runbook where the alert says, and no runbook is about an alert that is gone.
func TestEachAlertHasItsRunbook(t *testing.T) {
	gomod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	module := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(gomod)[1]
	alerts := map[string]bool{}
	for _, r := range rules(t) {
		require.False(t, alerts[r.Alert], "%s is there twice", r.Alert)
		alerts[r.Alert] = true
		require.Equal(t, "https://"+string(module)+"/blob/main/docs/runbooks/"+r.Alert+".md", r.Annotations["runbook_url"])
		page, err := os.ReadFile(filepath.Join(runbooks, r.Alert+".md"))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(page), "# "+r.Alert+"\n"), r.Alert)
		var found []string
		for _, m := range regexp.MustCompile(`(?m)^## (.*)\n\n\S`).FindAllStringSubmatch(string(page), -1) {
			found = append(found, m[1])
		}
		require.Equal(t, parts, found, r.Alert)
		require.LessOrEqual(t, strings.Count(string(page), "\n"), 60, "%s is read in the worst hour of the week", r.Alert)
	}
	pages, err := os.ReadDir(runbooks)
	require.NoError(t, err)
	index, err := os.ReadFile("../../docs/not-arrived.md")
	require.NoError(t, err)
	for _, p := range pages {
		require.True(t, alerts[strings.TrimSuffix(p.Name(), ".md")], "%s is about no alert", p.Name())
		require.Contains(t, string(index), "(runbooks/"+p.Name()+")", "no symptom leads to it")
	}
}
