// Command notyet delivers Kafka messages later: the services and the operators' commands.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	kongcompletion "github.com/jotaen/kong-completion"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/ops"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

func main() {
	a := &app{command.OfProcess("notyet")}
	os.Exit(a.run(os.Args[1:]))
}

type cli struct {
	Dev        devCmd        `cmd:"" help:"Run everything in one process, for trying out and development."`
	Scanner    scannerCmd    `cmd:"" help:"Run a scanner: stores requests from the intake in the database."`
	Dispatcher dispatcherCmd `cmd:"" help:"Run a dispatcher: delivers tasks when they are due."`
	All        allCmd        `cmd:"" help:"Run a scanner and a dispatcher in one process."`
	Doctor     doctorCmd     `cmd:"" help:"Look at all servers that are configured, and say what is wrong and the fix."`
	Config     configCmd     `cmd:"" help:"Check the configuration, and print where each value comes from."`
	Migrate    migrateCmd    `cmd:"" help:"Create or update the database tables and notyet's own topics."`

	Schedule scheduleCmd `cmd:"" help:"Schedule a message."`
	Cancel   cancelCmd   `cmd:"" help:"Cancel a scheduled message, and print the answer."`
	Stop     stopCmd     `cmd:"" help:"Cancel a message, or end the attempts of one that waits for a report or a retry, and print the answer."`
	Fire     fireCmd     `cmd:"" help:"Deliver a scheduled message now, and print the answer."`
	Get      getCmd      `cmd:"" help:"Show a task."`
	List     listCmd     `cmd:"" help:"List the tasks due next, or those that ended last."`
	Forecast forecastCmd `cmd:"" help:"Count the tasks due in each step of time."`
	Watch    watchCmd    `cmd:"" help:"Follow the events of tasks."`

	Timer timerCmd `cmd:"" help:"Make, change and preview timers, which schedule messages again and again."`

	Target targetCmd `cmd:"" help:"Pause, resume and limit what a target gets."`
	Slots  slotsCmd  `cmd:"" help:"Show and change the number of slots."`
	Shards shardsCmd `cmd:"" help:"Show and change which of several databases has which targets."`

	Deadletter deadletterCmd      `cmd:"" help:"List, replay and delete messages that were given up."`
	Operations operationsCmd      `cmd:"" help:"Show and stop changes of many that the services go on with by themselves (--async)."`
	Cluster    clusterCmd         `cmd:"" help:"Show the services that are alive, the slots, and the lag of the intake."`
	Audit      auditCmd           `cmd:"" help:"Show who changed what."`
	Intake     intakeCmd          `cmd:"" help:"Show the intake's partitions, and move one that is stuck."`
	Token      tokenCmd           `cmd:"" help:"Make tokens for the API."`
	Bench      benchCmd           `cmd:"" help:"Measure load and lateness of a running installation: runs notyet-bench." passthrough:""`
	Version    command.VersionCmd `cmd:"" help:"Print the version; so does --version."`
	Completion completionCmd      `cmd:"" help:"Print what makes a shell complete notyet's commands and flags."`
}

const description = `Scheduled messages for Kafka: publish to an intake topic with headers that say where and when, and notyet delivers the message to its topic at that time.

Settings come from the file that --config (or NOTYET_CONFIG) names, then the environment (NOTYET_KAFKA_BROKERS, NOTYET_MYSQL_DSN, NOTYET_REDIS_ADDRS, NOTYET_ZOOKEEPER_SERVERS, NOTYET_HTTP_ADDR, …), then flags; later ones take precedence.

Exit codes: 0 done, 1 failed, 2 bad usage or configuration.`

func (a *app) run(args []string) int {
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	a.Ctx = admin.WithActor(a.Ctx, admin.Actor{Who: operator(), Via: admin.ViaCLI})
	return a.Run(args, command.Grammar{Commands: &cli{}, Description: description, Bind: a, IsMistake: isMistake})
}

// isMistake recognizes refusals because of the caller's input.
func isMistake(err error) bool {
	var field *deadletter.FieldError
	var mistake *api.MistakeError
	return errors.As(err, &field) || errors.As(err, &mistake) || errors.Is(err, look.ErrState) || errors.Is(err, ops.ErrInUse)
}

type completionCmd struct {
	kongcompletion.Completion
}

func (completionCmd) Help() string {
	return `Prints the command that makes bash, zsh or fish complete commands, flags and their values, and where to put it. A package
can ship what that command runs: --code prints it.

Examples:
  notyet completion
  source <(notyet completion --code bash)
  notyet completion --code fish | source`
}

// benchCmd becomes notyet-bench: its plotting libraries are no part of every service.
type benchCmd struct {
	Args []string `arg:"" help:"Command and flags of notyet-bench; none: its help." optional:""`
}

const measurer = "notyet-bench"

// Run replaces this process, so that signals and the exit code are the measurement's.
func (c *benchCmd) Run(a *app) error {
	path, err := besideOrOnPath(measurer)
	if err != nil {
		return fmt.Errorf("%s is neither beside this program nor in PATH: make build makes both", measurer)
	}
	args := c.Args
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if err := syscall.Exec(path, append([]string{a.Program + "-bench"}, args...), a.Environ); err != nil {
		return fmt.Errorf("starting %s: %w", path, err)
	}
	return nil
}

func besideOrOnPath(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}
