package config

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// update writes the page anew: go test ./internal/config -run TestReference -update.
var update = flag.Bool("update", false, "rewrite docs/settings-reference.md")

const reference = "../../docs/settings-reference.md"

const intro = `# All settings

[Settings](settings.md) names the usual ones. A key without a default is not set. Values have units: durations as 400ms, 4s or 168h, sizes as 256MiB. Services take over keys marked *live* at SIGHUP. A changed file with a secret, certificate or tokens is read again without it. Where a list restricts, * allows all.
`

// goName is a word of the source, such as AllowHTTP. These names come from outside.
var (
	goName  = regexp.MustCompile(`\b[A-Z]+[a-z]+[A-Z]\w*`)
	outside = strings.NewReplacer("OpenID", "", "ZooKeeper", "", "JWTs", "")
)

// The page names every setting, with what its comment in the source says.
func TestReference(t *testing.T) {
	comments := commentsOfFields(t)
	var out strings.Builder
	out.WriteString(intro)
	section, servers := ".", 0
	var tls []string
	for _, f := range fields {
		owner, name := fieldOf(f)
		about := comments[owner+"."+name]
		require.NotEmpty(t, about, "%s.%s says nothing: give it a comment with its unit and default", owner, name)
		about = forUsers(t, owner, name, about)
		if f.live {
			about += " *Live.*"
		}
		head, rest, _ := strings.Cut(f.key, ".")
		switch {
		case !strings.Contains(f.key, "."):
			head = "others"
		case owner == "Topic":
			about, head = "the name. Default notyet."+head+".", "other topics"
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

// forUsers drops the field's name, which the key has, and the verb behind it.
func forUsers(t *testing.T, owner, name, about string) string {
	about = strings.TrimSuffix(about, " Default none.")
	for _, verb := range []string{"is ", "are ", ""} {
		if rest, ok := strings.CutPrefix(about, name+" "+verb); ok {
			about = rest
			break
		}
	}
	require.NotRegexp(t, goName, outside.Replace(about), "%s.%s names something of the source", owner, name)
	return about
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
