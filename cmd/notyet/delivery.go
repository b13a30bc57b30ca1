package main

import (
	"strconv"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/command"
)

// delivery holds the flags that say how a task is delivered. A timer's are those of each run.
type delivery struct {
	Priority    string `help:"Order among tasks that are due at the same time." placeholder:"high|normal|low"`
	Ack         string `help:"What completes a task: Kafka's acknowledgement (none, default) or a consumer's report (report)." placeholder:"none|report"`
	AckTimeout  string `help:"With --ack report: how long to wait for the report. Default 1m." placeholder:"DURATION"`
	MaxAttempts string `help:"Maximum number of deliveries of a task. Default 16." placeholder:"N"`
	Backoff     string `help:"Pause between attempts. Default exponential:1s:10m." placeholder:"KIND:…"`
	MaxLateness string `help:"If a task would be later than this, make it a dead letter instead." placeholder:"DURATION"`
	Tag         string `help:"Up to 4 tags with commas between, to select the task by one of them." placeholder:"TAG,…"`
	Events      string `help:"Which events go to the results topic." placeholder:"none|final|all"`
}

func (d *delivery) request() (api.DeliverySettings, error) {
	out := api.DeliverySettings{Priority: d.Priority, Ack: d.Ack, AckTimeout: d.AckTimeout, Backoff: d.Backoff, MaxLateness: d.MaxLateness, Tag: d.Tag, Events: d.Events}
	err := number("--max-attempts", d.MaxAttempts, &out.MaxAttempts)
	return out, err
}

func number(flag, text string, into **int64) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return command.Usage("%s %q: write a whole number", flag, text)
	}
	*into = &n
	return nil
}
