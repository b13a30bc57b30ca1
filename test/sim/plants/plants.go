// Package plants holds small mistakes that the simulator is to find. Each is a file beside this one: the product with this mistake in
// it is the input, a build overlay comes out, and the product itself stays as it is.
//
// The first line of a plant's file is the mistake, and the lines up to "found as:" say more. "found as:" lists the invariants by which
// it may be found; "from:" is the first seed that can find it, where older ones draw nothing of the kind. Then come the changes, as in a unified diff without line numbers:
//
//	--- scanner/retry.go
//	 a line that stays
//	-a line that goes
//	+a line that comes
//	@@
//	-another place in the same file
//
// The lines that stay or go must stand in the file, together, exactly once.
package plants

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed *.plant
var files embed.FS

// Plant is one mistake.
type Plant struct {
	Name    string
	Mistake string
	FoundAs []string
	From    uint64 // the first seed that can find it; 0: any
	changes []change
}

type change struct{ file, old, new string }

// All reads every plant, sorted by name.
func All() ([]Plant, error) {
	names, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var out []Plant
	for _, n := range names {
		text, err := files.ReadFile(n.Name())
		if err != nil {
			return nil, err
		}
		p, err := parse(strings.TrimSuffix(n.Name(), ".plant"), string(text))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", n.Name(), err)
		}
		out = append(out, p)
	}
	return out, nil
}

func parse(name, text string) (Plant, error) {
	p, file := Plant{Name: name}, ""
	var c *change
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch rest, ok := strings.CutPrefix(line, "--- "); {
		case ok:
			file = rest
			p.changes, c = append(p.changes, change{file: file}), nil
		case line == "@@" && file != "":
			p.changes, c = append(p.changes, change{file: file}), nil
		case file == "" && n == 0:
			p.Mistake = line
		case file == "" && strings.HasPrefix(line, "found as: "):
			p.FoundAs = strings.Fields(strings.TrimPrefix(line, "found as: "))
		case file == "" && strings.HasPrefix(line, "from: "):
			from, err := strconv.ParseUint(strings.TrimPrefix(line, "from: "), 10, 64)
			if err != nil {
				return p, err
			}
			p.From = from
		case file == "":
		default:
			if c = &p.changes[len(p.changes)-1]; line == "" {
				line = " "
			}
			switch kind, rest := line[0], line[1:]+"\n"; kind {
			case ' ':
				c.old, c.new = c.old+rest, c.new+rest
			case '-':
				c.old += rest
			case '+':
				c.new += rest
			default:
				return p, fmt.Errorf("line %d begins with none of ' ', '-' and '+'", n+1)
			}
		}
	}
	if p.Mistake == "" || len(p.FoundAs) == 0 || len(p.changes) == 0 {
		return p, fmt.Errorf("the mistake, \"found as:\" or a change is missing")
	}
	return p, nil
}

// Apply returns the changed files of the tree at root, by their path in it. It fails if a place of the plant is not there exactly once:
// then the product has changed, and the plant must be adapted.
func (p Plant) Apply(root string) (map[string]string, error) {
	out := map[string]string{}
	for _, c := range p.changes {
		text, ok := out[c.file]
		if !ok {
			read, err := os.ReadFile(filepath.Join(root, c.file))
			if err != nil {
				return nil, fmt.Errorf("planting %s: %w", p.Name, err)
			}
			text = string(read)
		}
		if n := strings.Count("\n"+text, "\n"+c.old); n != 1 || c.old == "" {
			return nil, fmt.Errorf("planting %s: the place in %s is there %d times instead of once: adapt the plant to today's code\n%s", p.Name, c.file, n, c.old)
		}
		out[c.file] = strings.TrimPrefix(strings.Replace("\n"+text, "\n"+c.old, "\n"+c.new, 1), "\n")
	}
	return out, nil
}

// Overlay writes the changed files into dir, and the file for the -overlay of go build, whose path it returns.
func (p Plant) Overlay(root, dir string) (string, error) {
	changed, err := p.Apply(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range changed {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// Finds says whether a finding of an invariant counts as finding this plant.
func (p Plant) Finds(invariant string) bool { return slices.Contains(p.FoundAs, invariant) }
