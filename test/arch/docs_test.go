package arch

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// link is a Markdown link to a file of ours.
var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

func TestLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	root, found := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			name, err := url.PathUnescape(m[1])
			require.NoError(t, err, "%s: %s", path, m[1])
			_, err = os.Stat(filepath.Join(filepath.Dir(path), name))
			require.NoError(t, err, "%s links to %s", path, m[1])
			found++
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, found, 50)
}

// file is a Go file that a page names.
var file = regexp.MustCompile("`([a-z]+/[a-z/]+[a-z]+\\.go)`")

func TestArchitectureNamesFilesThatAreThere(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	require.NoError(t, err)
	named := file.FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(named), 20)
	for _, m := range named {
		require.FileExists(t, filepath.Join("..", "..", m[1]))
	}
}

var (
	comment = regexp.MustCompile(`(?m)(?:^|\s)//.*$`)
	// fileInComment is a Go file of ours that a comment names with its folder.
	fileInComment = regexp.MustCompile(`\b(?:api|callback|cmd|consumer|deadletter|dispatcher|events|internal|scanner|schemas|store|task|timer)/[a-z/]*[a-z]+\.go\b`)
)

func TestCommentsNameFilesThatAreThere(t *testing.T) {
	root, found := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, c := range comment.FindAllString(string(text), -1) {
			for _, name := range fileInComment.FindAllString(c, -1) {
				require.FileExists(t, filepath.Join(root, name), path)
				found++
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, found, 20)
}

// The first two pages that a stranger reads stay short; the rest is in docs/.
func TestFirstPagesStayShort(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(readme), "\n"), 150)
	architecture, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(strings.Fields(string(architecture))), 1500)
}

var (
	section = regexp.MustCompile(`(?m)^\*\*.*$`)
	folder  = regexp.MustCompile("^\\*\\*`([a-z/]+)/`\\*\\*")
	goFile  = regexp.MustCompile("`([a-z0-9_*]+\\.go)`")
)

// A stranger looks into docs/design/packages.md for the file to open: it names every file of the packages that tasks pass through, and
// none that is gone.
func TestPackagesNamesEveryFile(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "design", "packages.md"))
	require.NoError(t, err)
	text, sections := string(page), 0
	begins := section.FindAllStringIndex(text, -1)
	for i, begin := range begins {
		end := len(text)
		if i+1 < len(begins) {
			end = begins[i+1][0]
		}
		m := folder.FindStringSubmatch(text[begin[0]:end])
		if m == nil || m[1] == "internal" || m[1] == "test" || m[1] == "scripts" {
			continue
		}
		sections++
		paths, err := filepath.Glob(filepath.Join("..", "..", m[1], "*.go"))
		require.NoError(t, err)
		var there []string
		for _, p := range paths {
			if name := filepath.Base(p); name != "doc.go" && !strings.HasSuffix(name, "_test.go") {
				there = append(there, name)
			}
		}
		unnamed := slices.Clone(there)
		for _, named := range goFile.FindAllStringSubmatch(text[begin[0]:end], -1) {
			matches := func(name string) bool { ok, _ := filepath.Match(named[1], name); return ok }
			require.True(t, slices.ContainsFunc(there, matches), "packages.md names %s of %s, which is not there", named[1], m[1])
			unnamed = slices.DeleteFunc(unnamed, matches)
		}
		require.Empty(t, unnamed, "files of %s that packages.md does not name", m[1])
	}
	require.Greater(t, sections, 9)
}
