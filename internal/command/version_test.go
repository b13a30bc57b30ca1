package command

import (
	"os"
	"regexp"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionIsReleaseAndCommit(t *testing.T) {
	noted := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}}
	require.Equal(t, release, versionOf("", nil))
	require.Equal(t, release, versionOf("", &debug.BuildInfo{}))
	require.Equal(t, release+"+012345678-dirty", versionOf("", noted))
	require.Equal(t, release+"+abc", versionOf("abc", noted), "the build knows better")
}

func TestReleaseIsTheLatestOfTheChangelog(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	require.NoError(t, err)
	latest := regexp.MustCompile(`(?m)^## \[(\d[^]]*)\]`).FindSubmatch(text)
	require.NotNil(t, latest)
	require.Equal(t, string(latest[1]), release)
}
