// Command notyet delivers Kafka messages later. It contains the services and the operators'
// commands.
package main

import (
	"os"

	"github.com/notyet/notyet/cmd/internal/command"
)

func main() {
	a := &app{command.OfProcess("notyet")}
	os.Exit(a.run(os.Args[1:]))
}
