// Command mutants puts small mistakes into packages, one at a time, and says which of them no test notices. scripts/mutants runs it.
//
// The mistakes are those of other such programs: a comparison at its boundary or turned round, && for ||, a condition that is its opposite,
// arithmetic, a step the other way, break for continue. All mutants of a package are compiled into one program, each behind a question for
// its number. So a mutant costs one run of the tests, and no build.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	with := flag.String("with", "", "packages whose tests are asked about what the package's own do not notice, separated by commas")
	only := flag.String("only", "", "files to put mistakes into, separated by commas (default: all of the package)")
	list := flag.String("known", "test/mutants/equivalent.txt", "mutants that change nothing, each with why")
	score := flag.Float64("score", 90, "the share of mutants, in percent, that tests have to notice")
	flag.Parse()
	if flag.NArg() != 1 {
		return errors.New("name one package: mutants [-with PACKAGE,…] PACKAGE")
	}
	known, err := equivalents(*list)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "notyet-mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := newSurvey(dir, flag.Arg(0), split(*only))
	if err != nil {
		return err
	}
	for _, p := range append([]string{flag.Arg(0)}, split(*with)...) {
		if err := s.test(p); err != nil {
			return err
		}
	}
	return s.report(known, *score)
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// equivalents reads the mutants that change nothing: a line with file, text of the line and change, then a line with why.
func equivalents(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out, which := map[string]string{}, ""
	for _, line := range strings.Split(string(text), "\n") {
		switch why, reason := strings.CutPrefix(line, "\t"); {
		case reason && which != "":
			out[which] = why
			which = ""
		case line != "" && !strings.HasPrefix(line, "#"):
			which = line
		}
	}
	if which != "" {
		return nil, fmt.Errorf("%s: %s: the line that says why is missing", path, which)
	}
	return out, nil
}
