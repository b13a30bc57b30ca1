// Package command is the common part of notyet's programs: the command line and the exit codes, the
// flags of settings, the way to Kafka, and output safe for a terminal.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"

	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/schemas"
)

// Exit codes of the contract.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// App is a command's environment.
type App struct {
	Ctx            context.Context //nolint:containedctx // one command's life
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Environ        []string
	Name           string // the program's, before every complaint
	Program        string // how this program was called, for hints that can be typed

	asJSON bool // errors are JSON, as --json asks
}

// OfProcess returns the environment of this process. The context ends with the first signal.
func OfProcess(name string) *App {
	ctx, cancel := context.WithCancel(context.Background())
	go onSignals(name, cancel)
	return &App{Ctx: ctx, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(), Name: name, Program: Called(os.Args[0], name)}
}

// Called returns how to call this program again: by path if the call had one, otherwise by name.
func Called(arg0, name string) string {
	if strings.ContainsRune(arg0, filepath.Separator) {
		return arg0
	}
	return name
}

// onSignals stops the program gracefully at the first signal and exits at the second. The exit is
// as safe as kill -9, and every part survives one.
func onSignals(name string, stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	<-signals
	stop()
	s := <-signals
	fmt.Fprintln(os.Stderr, name+": stopping at once")
	code := ExitFailed
	if n, ok := s.(syscall.Signal); ok {
		code = 128 + int(n)
	}
	os.Exit(code)
}

// UsageError is a mistake in the command line. The exit code is ExitUsage.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e UsageError) Unwrap() error { return e.Err }

// Usage makes a UsageError.
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// ErrReported means: the failure is already printed. Within a UsageError it is the caller's
// mistake.
var ErrReported = errors.New("failed")

// Grammar is the command line of one program.
type Grammar struct {
	Commands    any // a pointer to kong's struct
	Description string
	Bind        any              // what the commands' Run gets, besides the App
	IsMistake   func(error) bool // may be nil; true for errors of a command that are mistakes of its caller
}

// exited is how kong ends the program for --help.
type exited int

// Run runs the program: arguments in, exit code out.
func (a *App) Run(args []string, g Grammar) (code int) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exited)
			if !ok {
				panic(r)
			}
			code = int(e)
		}
	}()
	a.Stdout, a.Stderr = Visible(a.Stdout), Visible(a.Stderr)
	parser, err := kong.New(g.Commands, kong.Name(a.Name), kong.Description(g.Description),
		kong.Writers(a.Stdout, a.Stderr), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true, WrapUpperBound: 110}),
		kong.Bind(a), kong.Bind(g.Bind))
	if err != nil {
		fmt.Fprintln(a.Stderr, a.Name+":", err)
		return ExitFailed
	}
	kongcompletion.Register(parser)
	a.asJSON = asksJSON(args)
	if len(args) > 0 && args[0] == "--version" { // no flag: it is one of some commands, with another meaning
		args = append([]string{"version"}, args[1:]...)
	}
	parsed, err := parser.Parse(args)
	if err == nil {
		err = cmp.Or(onlyText(args), NoneEmpty(parsed), targetNames(parsed))
	}
	if err != nil {
		return a.misused(err, parsed)
	}
	return a.Code(parsed.Run(), g.IsMistake)
}

// NoneEmpty refuses an empty flag value or argument, usually from an unset shell variable. The
// empty text would silently mean the default, such as a task without an id, or all dead letters.
// --key and --value may be empty.
func NoneEmpty(c *kong.Context) error {
	for _, p := range c.Path {
		if f := p.Flag; f != nil && f.Target.Kind() == reflect.String && f.Target.Len() == 0 {
			return fmt.Errorf("--%s is empty: give it a value, or leave it out", f.Name)
		}
		if v := p.Positional; v != nil && v.Target.Kind() == reflect.String && v.Target.Len() == 0 {
			return errors.New("an argument is empty: give it a value, or leave it out")
		}
	}
	return nil
}

// targetNames refuses a name impossible for a target. Nothing would be found under the name.
func targetNames(c *kong.Context) error {
	for _, p := range c.Path {
		if f := p.Flag; f != nil && f.Name == "topic" && f.Target.Kind() == reflect.String {
			if _, mistake := schemas.ParseTarget([]byte(f.Target.String())); mistake != nil {
				return fmt.Errorf("--topic %q %s: %s", mistake.Value, mistake.Problem, mistake.Fix)
			}
		}
	}
	return nil
}

// onlyText refuses arguments beyond UTF-8: the parser would replace bytes.
func onlyText(args []string) error {
	for i, arg := range args {
		if utf8.ValidString(arg) {
			continue
		}
		name, _, _ := strings.Cut(arg, "=")
		if name == arg || !utf8.ValidString(name) {
			name = fmt.Sprintf("argument %d", i+1)
		}
		if i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.Contains(args[i-1], "=") {
			name = args[i-1]
		}
		return fmt.Errorf("%s is not UTF-8: write text; a value of any bytes goes through --value-file or standard input", name)
	}
	return nil
}

// asksJSON looks for --json in a possibly mistaken command line.
func asksJSON(args []string) bool {
	for _, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		if name == "--json" {
			yes, err := strconv.ParseBool(value)
			return !given || err == nil && yes
		}
	}
	return false
}

// failed is an error of a command with --json.
type failed struct {
	Error    string           `json:"error"`
	Problems []config.Problem `json:"problems,omitempty"` // of the configuration
	Try      string           `json:"try,omitempty"`      // the command that explains more
	Code     int              `json:"code"`               // the exit code
}

// fail prints an error on stderr, as JSON on one line with --json, and returns the exit code.
// stdout keeps the output before the error.
func (a *App) fail(code int, err error, try string) int {
	if a.asJSON {
		out := failed{Error: err.Error(), Try: try, Code: code}
		if bad, ok := errors.AsType[*config.Error](err); ok {
			out.Problems = bad.Problems
		}
		_ = line(a.Stderr, out)
		return code
	}
	fmt.Fprintln(a.Stderr, a.Name+":", err)
	if try != "" {
		fmt.Fprintln(a.Stderr, "Try:", try)
	}
	return code
}

// misused explains a mistake in the command line; parsed is nil if the mistake ended the parsing.
func (a *App) misused(err error, parsed *kong.Context) int {
	if pe, ok := errors.AsType[*kong.ParseError](err); ok {
		parsed = pe.Context
	}
	command := a.Program
	if parsed != nil {
		for _, p := range parsed.Path {
			if p.Command != nil {
				command += " " + p.Command.Name
			}
		}
	}
	return a.fail(ExitUsage, err, command+" --help")
}

// Code prints a command's error and returns the exit code.
func (a *App) Code(err error, isMistake func(error) bool) int {
	var bad UsageError
	var badConfig *config.Error
	switch {
	case err == nil:
		return ExitDone
	case errors.Is(err, ErrReported) && errors.As(err, &bad):
		return ExitUsage
	case errors.Is(err, ErrReported):
		return ExitFailed
	case a.Ctx.Err() != nil && errors.Is(err, context.Canceled):
		return a.fail(ExitFailed, errors.New("interrupted"), "")
	}
	if errors.As(err, &bad) || errors.As(err, &badConfig) || isMistake != nil && isMistake(err) {
		return a.fail(ExitUsage, err, "")
	}
	return a.fail(ExitFailed, err, "")
}
