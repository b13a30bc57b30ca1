package console

import (
	"bytes"
	"html/template"
	"net/http"
	"path"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	source "github.com/yuin/goldmark/text"

	"github.com/notyet/notyet/docs"
)

// published is where a runbook's links to other pages lead.
const published = "https://github.com/notyet/notyet/blob/main/"

// runbook shows what to do about an alert.
func (c *Console) runbook(r *http.Request) (view, error) {
	name := strings.TrimSuffix(r.PathValue("name"), ".md") // as the pages call each other
	page, err := docs.Runbooks.ReadFile(path.Join("runbooks", name+".md"))
	if err != nil {
		return view{}, &Problem{Status: http.StatusNotFound, Title: "There is no such runbook", Detail: name + " is the name of no alert of this release"}
	}
	tree := goldmark.DefaultParser().Parse(source.NewReader(page))
	tree.RemoveChild(tree, tree.FirstChild()) // the heading is the title
	err = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, ok := n.(*ast.Link); ok && entering && strings.HasPrefix(string(link.Destination), "../") {
			link.Destination = []byte(published + path.Join("docs/runbooks", string(link.Destination)))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return view{}, err
	}
	var out bytes.Buffer
	if err := goldmark.New().Renderer().Render(&out, page, tree); err != nil {
		return view{}, err
	}
	return view{page: "runbook", title: name, data: template.HTML(out.String())}, nil //nolint:gosec // of our own pages
}
