package config

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// update writes the page anew: go test ./internal/config -run TestReference -update.
var update = flag.Bool("update", false, "rewrite docs/settings-reference.md")

const reference = "../../docs/settings-reference.md"

// The page names every setting, with what its comment in the source says.
func TestReference(t *testing.T) {
	comments := commentsOfFields(t)
	var out strings.Builder
	out.WriteString("# All settings\n\nEach key with its unit and default, if there is one, from the comments of the source (`go test ./internal/config -run TestReference -update`). [Settings](settings.md) names the usual ones. Services take the live ones over at SIGHUP.\n")
	section, servers := ".", 0
	var tls []string
	for _, f := range fields {
		owner, name := fieldOf(f)
		about := comments[owner+"."+name]
		require.NotEmpty(t, about, "%s.%s says nothing: give it a comment with its unit and default", owner, name)
		about = strings.TrimSuffix(about, " Default none.")
		for _, verb := range []string{" is ", " are "} { // the key has the name
			about = strings.TrimPrefix(about, name+verb)
		}
		if f.live {
			about += " Live."
		}
		head, rest, _ := strings.Cut(f.key, ".")
		switch {
		case !strings.Contains(f.key, "."):
			head = "others"
		case owner == "TLS" && head != "kafka": // the same for each server: said once
			servers++
			continue
		}
		if head != section {
			section = head
			fmt.Fprintf(&out, "\n## %s\n\n", head)
		}
		if owner == "TLS" {
			tls = append(tls, fmt.Sprintf("- `X.%s`: %s\n", rest, about))
			continue
		}
		fmt.Fprintf(&out, "- `%s`: %s\n", f.key, about)
	}
	require.Equal(t, 3*len(tls), servers, "mysql, redis and zookeeper")
	out.WriteString("\n## TLS of kafka, mysql, redis and zookeeper\n\n`X` is one of the four.\n\n" + strings.Join(tls, ""))
	if *update {
		require.NoError(t, os.WriteFile(reference, []byte(out.String()), 0o644))
	}
	page, err := os.ReadFile(reference)
	require.NoError(t, err)
	require.Equal(t, out.String(), string(page), "write it anew with -update")
}

// fieldOf is the struct that has a setting, and its name there.
func fieldOf(f field) (owner, name string) {
	t := reflect.TypeFor[Config]()
	for _, i := range f.index {
		owner, name = t.Name(), t.Field(i).Name
		t = t.Field(i).Type
	}
	return owner, name
}

// commentsOfFields are the comments of all fields of this package's structs, each in one line.
func commentsOfFields(t *testing.T) map[string]string {
	out := map[string]string{}
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file.Name(), "_test.go") || !strings.HasSuffix(file.Name(), ".go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range tree.Decls {
			types, ok := d.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			for _, spec := range types.Specs {
				of := spec.(*ast.TypeSpec)
				fields, ok := of.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, f := range fields.Fields.List {
					for _, name := range f.Names {
						out[of.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
					}
				}
			}
		}
	}
	return out
}
