package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/alecthomas/kong"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/store"
)

// Exit codes of the contract.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// cli is the whole command line.
type cli struct {
	Dev        devCmd        `cmd:"" help:"Run everything in one process, for trying out and development."`
	Scanner    scannerCmd    `cmd:"" help:"Run a scanner: stores requests from the intake in the database."`
	Dispatcher dispatcherCmd `cmd:"" help:"Run a dispatcher: delivers tasks when they are due."`
	All        allCmd        `cmd:"" help:"Run a scanner and a dispatcher in one process."`
	Doctor     doctorCmd     `cmd:"" help:"Look at all servers that are configured, and say what is wrong and the fix."`
	Migrate    migrateCmd    `cmd:"" help:"Create or update the database tables and notyet's own topics."`

	Schedule scheduleCmd `cmd:"" help:"Schedule a message."`
	Cancel   cancelCmd   `cmd:"" help:"Cancel a scheduled message, and print the answer."`
	Fire     fireCmd     `cmd:"" help:"Deliver a scheduled message now, and print the answer."`
	Get      getCmd      `cmd:"" help:"Show a task."`
	List     listCmd     `cmd:"" help:"List the tasks due next, or those that ended last."`
	Forecast forecastCmd `cmd:"" help:"Count the tasks due in each step of time."`
	Watch    watchCmd    `cmd:"" help:"Follow the events of tasks."`

	Timer timerCmd `cmd:"" help:"Make, change and preview timers, which schedule messages again and again."`

	Target targetCmd `cmd:"" help:"Pause, resume and limit what a target gets."`

	Deadletter deadletterCmd `cmd:"" help:"List, replay and delete messages that were given up."`
	Cluster    clusterCmd    `cmd:"" help:"Show the services that are alive, the slots, and the lag of the intake."`
	Audit      auditCmd      `cmd:"" help:"Show who changed what."`
	Intake     intakeCmd     `cmd:"" help:"Show the intake's partitions, and move one that is stuck."`
	Token      tokenCmd      `cmd:"" help:"Make tokens for the API."`
	Bench      benchCmd      `cmd:"" help:"Measure load and lateness of a running installation."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
}

// AfterApply refuses an empty flag value, which usually comes from an unset shell variable. It
// would silently mean the default, such as a task without an id, or all dead letters. --key and
// --value may be empty.
func (cli) AfterApply(c *kong.Context) error {
	for _, p := range c.Path {
		if f := p.Flag; f != nil && f.Target.Kind() == reflect.String && f.Target.Len() == 0 {
			return fmt.Errorf("--%s is empty: give it a value, or leave it out", f.Name)
		}
	}
	return nil
}

const description = `Scheduled messages for Kafka: publish to an intake topic with headers that say where and when, and notyet delivers the message to its topic at that time.

Settings come from the file that --config (or NOTYET_CONFIG) names, then the environment (NOTYET_KAFKA_BROKERS, NOTYET_MYSQL_DSN, NOTYET_REDIS_ADDRS, NOTYET_ZOOKEEPER_SERVERS, NOTYET_HTTP_ADDR, …), then flags; later ones take precedence.

Exit codes: 0 done, 1 failed, 2 bad usage or configuration.`

// app is a command's environment.
type app struct {
	ctx            context.Context //nolint:containedctx // one command's life
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	program        string // how this program was called, for hints that can be typed
}

// usageError is a mistake in the command line. Its exit code is 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errReported means that the command has failed and has already printed why.
var errReported = errors.New("failed")

// exited is how kong ends the program for --help.
type exited int

// run runs the program: arguments in, exit code out.
func (a *app) run(args []string) (code int) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exited)
			if !ok {
				panic(r)
			}
			code = int(e)
		}
	}()
	a.stdout, a.stderr = &visible{to: a.stdout}, &visible{to: a.stderr}
	var grammar cli
	parser, err := kong.New(&grammar, kong.Name("notyet"), kong.Description(description),
		kong.Writers(a.stdout, a.stderr), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true, WrapUpperBound: 110}),
		kong.Bind(a))
	if err != nil {
		fmt.Fprintln(a.stderr, "notyet:", err)
		return exitFailed
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return a.misused(err)
	}
	a.ctx = store.WithActor(a.ctx, store.Actor{Who: operator(), Via: store.ViaCLI})
	return a.code(parsed.Run())
}

// misused explains a mistake in the command line.
func (a *app) misused(err error) int {
	fmt.Fprintln(a.stderr, "notyet:", err)
	command := a.program
	var pe *kong.ParseError
	if errors.As(err, &pe) {
		for _, p := range pe.Context.Path {
			if p.Command != nil {
				command += " " + p.Command.Name
			}
		}
	}
	fmt.Fprintf(a.stderr, "Try: %s --help\n", command)
	return exitUsage
}

func (a *app) code(err error) int {
	var bad usageError
	var badConfig *config.Error
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errReported):
		return exitFailed
	case a.ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(a.stderr, "notyet: interrupted")
		return exitFailed
	}
	fmt.Fprintln(a.stderr, "notyet:", err)
	var field *deadletter.FieldError
	var mistake *api.MistakeError
	if errors.As(err, &bad) || errors.As(err, &badConfig) || errors.As(err, &field) || errors.Is(err, store.ErrState) || errors.As(err, &mistake) {
		return exitUsage
	}
	return exitFailed
}
