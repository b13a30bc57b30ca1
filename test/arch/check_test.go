package arch

import (
	"fmt"
	"slices"
	"strings"
)

// source is one Go file: its path from the root with slashes, and what it imports.
type source struct {
	path    string
	imports []string
}

func (s source) dir() string  { return s.path[:max(strings.LastIndex(s.path, "/"), 0)] }
func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// violations judges every import of every file by the tables, one message for each that breaks a rule.
func violations(sources []source) []string {
	var found []string
	for _, s := range sources {
		part, known := partOf(s.dir())
		if !known {
			found = append(found, fmt.Sprintf("package %s (%s) belongs to no part: give it a row in the arrow table", s.dir(), s.path))
			continue
		}
		for _, imported := range s.imports {
			if rule := broken(part, s.isTest(), imported); rule != "" {
				found = append(found, fmt.Sprintf("package %s imports %s (%s): %s", s.dir(), imported, s.path, rule))
			}
		}
	}
	return found
}

// broken names the rule that the import breaks, or is empty.
func broken(part string, test bool, imported string) string {
	if ours, ok := strings.CutPrefix(imported, module); ok {
		return brokenArrow(part, test, ours)
	}
	for library, home := range homes {
		if strings.HasPrefix(imported, library) && !slices.Contains(home, part) {
			return fmt.Sprintf("the home of %s is %s", library, home[0])
		}
	}
	for _, fake := range fakes {
		if strings.HasPrefix(imported, fake) && !test && part != "internal/embedded" && part != "test/sim" {
			return "a fake server is imported only by internal/embedded and by tests"
		}
	}
	return ""
}

func brokenArrow(part string, test bool, ours string) string {
	target, known := partOf(ours)
	if !known {
		return ours + " belongs to no part: give it a row in the arrow table"
	}
	allowed := arrows[part]
	switch {
	case within(target, "test") && !within(part, "test") && part != measuring && !test:
		return target + " is imported only by tests"
	case target == part, slices.Contains(allowed, anything), slices.Contains(allowed, target):
		return ""
	case test && !slices.Contains(stages, target) && target != "cmd":
		return ""
	case len(allowed) == 0:
		return part + " may import nothing of ours"
	default:
		return fmt.Sprintf("%s may import only %s of ours", part, strings.Join(allowed, ", "))
	}
}

// partOf finds the row that covers a folder: the longest, so that a part may have a row inside another's.
func partOf(dir string) (part string, known bool) {
	for row := range arrows {
		if within(dir, row) && len(row) > len(part) {
			part, known = row, true
		}
	}
	return part, known
}

func within(dir, part string) bool { return dir == part || strings.HasPrefix(dir, part+"/") }
