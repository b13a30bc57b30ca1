// Command notyet delivers Kafka messages later. It contains the services and the operators'
// commands.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "unknown"

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	go onSignals(cancel)
	a := &app{ctx: ctx, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(), program: called(os.Args[0])}
	os.Exit(a.run(os.Args[1:]))
}

// called returns how to call this program again: its path if it was called by one, otherwise its
// name.
func called(arg0 string) string {
	if strings.ContainsRune(arg0, filepath.Separator) {
		return arg0
	}
	return "notyet"
}

// onSignals stops the program gracefully at the first signal and exits at the second. That is as
// safe as kill -9, which every part survives.
func onSignals(stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	<-signals
	stop()
	s := <-signals
	fmt.Fprintln(os.Stderr, "notyet: stopping at once")
	code := exitFailed
	if n, ok := s.(syscall.Signal); ok {
		code = 128 + int(n)
	}
	os.Exit(code)
}
