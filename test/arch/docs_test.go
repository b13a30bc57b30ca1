package arch

import (
	"bytes"
	"encoding/csv"
	"go/parser"
	"go/token"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
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

var (
	// noticed is a test that a row names.
	noticed  = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]+)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w+)\(`)
)

// testNames returns the names of all tests.
func testNames(t *testing.T) map[string]bool {
	tests := map[string]bool{}
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			tests[m[1]] = true
		}
		return nil
	})
	require.NoError(t, err)
	return tests
}

// Mistakes that readers from outside found: each names what notices it now.
func TestFoundMistakesHaveTests(t *testing.T) {
	root, tests := filepath.Join("..", ".."), testNames(t)
	page, err := os.ReadFile(filepath.Join(root, "test", "mistakes.csv"))
	require.NoError(t, err)
	rows, err := csv.NewReader(bytes.NewReader(page)).ReadAll()
	require.NoError(t, err)
	require.Greater(t, len(rows), 20)
	for _, row := range rows[1:] {
		named := strings.Fields(row[2])
		require.NotEmpty(t, named, row)
		for _, name := range named {
			if !tests[name] {
				require.FileExists(t, filepath.Join(root, "test", "sim", "plants", name+".plant"))
			}
		}
	}
}

// Each row of the table of what comes back older names its tests.
func TestRecoveryHasTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "recovery.md"))
	require.NoError(t, err)
	table, _, _ := strings.Cut(string(page), "\n\nKafka and the database both older")
	tests, rows := testNames(t), strings.Split(table, "\n")[4:]
	require.Greater(t, len(rows), 10)
	for _, row := range rows {
		named := noticed.FindAllStringSubmatch(row[strings.LastIndex(row, " | "):], -1)
		require.NotEmpty(t, named, row)
		for _, m := range named {
			require.True(t, tests[m[1]], m[1])
		}
	}
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

// The comment of a package says what the package is for; no other page does.
func TestEachPackageHasAComment(t *testing.T) {
	root, said := filepath.Join("..", ".."), map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata") {
			return err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		require.NoError(t, err)
		said[filepath.Dir(path)] += tree.Doc.Text()
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(said), 40)
	for folder, text := range said {
		require.Regexp(t, `(?m)^(Package|Command) \S+ \S+ \S+`, text, "%s has no comment that says what it is for", folder)
	}
}
