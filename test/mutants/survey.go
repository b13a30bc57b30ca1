package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// survey is what becomes of the mutants of one package.
type survey struct {
	dir     string // for what is built
	root    string
	pkg     listed
	mutants []mutant
	overlay string
	passed  []bool   // by number, less 1: some test passes the mutant's place
	noticed []string // by whose tests; "": nobody's
}

// listed is a package as go list names it.
type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
}

func newSurvey(dir, pkg string, only []string) (*survey, error) {
	s := &survey{dir: dir}
	var err error
	if s.root, err = os.Getwd(); err != nil {
		return nil, err
	}
	all, err := list(pkg)
	if err != nil {
		return nil, err
	}
	s.pkg = all[len(all)-1]
	exports := map[string]string{}
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	if err := s.plant(exports, only); err != nil {
		return nil, err
	}
	s.passed, s.noticed = make([]bool, len(s.mutants)), make([]string, len(s.mutants))
	return s, nil
}

// list names a package and all that it imports, itself last.
func list(pkg string) (out []listed, err error) {
	text, err := exec.Command("go", "list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles", pkg).Output()
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", pkg, err)
	}
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
}

// plant writes the package with its mutants, and the file for the -overlay of go build.
func (s *survey) plant(exports map[string]string, only []string) error {
	fset, info := token.NewFileSet(), &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	var files []*ast.File
	for _, name := range s.pkg.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(s.pkg.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	checked, err := conf.Check(s.pkg.ImportPath, fset, files, info)
	if err != nil {
		return err
	}
	replace := map[string]string{}
	write := func(name, text string) error {
		to := filepath.Join(s.dir, name)
		replace[filepath.Join(s.pkg.Dir, name)] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	for i, name := range s.pkg.GoFiles {
		if len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		path := filepath.Join(s.pkg.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		short, err := filepath.Rel(s.root, path)
		if err != nil {
			return err
		}
		r := rewriter{fset: fset, info: info, pkg: checked, text: string(text), name: short, mutants: &s.mutants}
		if err := write(name, r.file(files[i])); err != nil {
			return err
		}
	}
	if err := write("mutant_helper.go", "package "+checked.Name()+"\n"+helper); err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	s.overlay = filepath.Join(s.dir, "overlay.json")
	return os.WriteFile(s.overlay, text, 0o600)
}

// test runs the tests of a package with each mutant that they pass and that nobody has noticed.
func (s *survey) test(pkg string) error {
	binary := filepath.Join(s.dir, "test")
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", s.overlay, "-o", binary, pkg).CombinedOutput(); err != nil {
		return fmt.Errorf("building the tests of %s: %w\n%s", pkg, err, out)
	}
	list, err := exec.Command("go", "list", "-f", "{{.Dir}}", pkg).Output()
	if err != nil {
		return err
	}
	run := func(bound time.Duration, env ...string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary, "-test.failfast", "-test.count=1")
		cmd.Dir, cmd.Env = strings.TrimSpace(string(list)), append(os.Environ(), env...)
		return cmd.CombinedOutput()
	}
	passed := filepath.Join(s.dir, "passed")
	_ = os.Remove(passed)
	began := time.Now()
	if out, err := run(time.Hour, "MUTANT_PASSED="+passed); err != nil {
		return fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", pkg, err, out)
	}
	took := time.Since(began)
	text, err := os.ReadFile(passed)
	if err != nil {
		return fmt.Errorf("the tests of %s pass no mutant: %w", pkg, err)
	}
	fmt.Printf("%s: its tests took %v\n", pkg, took.Round(time.Millisecond))
	for _, line := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(line)
		if err != nil {
			return err
		}
		s.passed[id-1] = true
		if s.noticed[id-1] != "" {
			continue
		}
		if _, err := run(10*took+10*time.Second, "MUTANT="+line); err != nil {
			s.noticed[id-1] = pkg
		}
	}
	return nil
}

// report prints what nobody has noticed, and fails below a score.
func (s *survey) report(known map[string]string, score float64) error {
	noticed, passed, equivalent := 0, 0, 0
	for i, m := range s.mutants {
		why, same := known[m.name()]
		switch {
		case !s.passed[i]:
			fmt.Printf("not passed  %s: %s: %s\n", m.file, m.place, m.what)
		case s.noticed[i] != "":
			passed++
			noticed++
		case same:
			equivalent++
			fmt.Printf("equivalent  %s: %s (%s)\n", m.file, m.what, why)
		default:
			passed++
			fmt.Printf("lives       %s: %s: %s\n", m.file, m.place, m.what)
		}
	}
	share := 100 * float64(noticed) / float64(max(passed, 1))
	fmt.Printf("%s: %d mutants, %d passed by tests and not known to change nothing (%d are), %d noticed: %.1f %%\n", s.pkg.ImportPath, len(s.mutants), passed, equivalent, noticed, share)
	if share < score {
		return fmt.Errorf("%s: tests notice %.1f %% of the mutants that they pass, and %.0f %% are wanted", s.pkg.ImportPath, share, score)
	}
	return nil
}
