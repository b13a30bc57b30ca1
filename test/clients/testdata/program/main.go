// Command client uses the generated client as a program of somebody else would.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"client/notyet"
)

func check(err error, body []byte) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err, string(body))
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	c, err := notyet.NewClientWithResponses(os.Args[1])
	check(err, nil)
	delay, id, topic, wait, priority := "1h", "a/b ü", "orders", "20s", notyet.SchedulePriorityHigh
	scheduled, err := c.ScheduleTaskWithResponse(ctx, &notyet.ScheduleTaskParams{Wait: &wait}, notyet.Schedule{Topic: &topic, Id: &id, Delay: &delay, Priority: &priority})
	check(err, nil)
	if scheduled.JSON200 == nil || scheduled.JSON200.Request == nil {
		check(fmt.Errorf("scheduling was answered %s", scheduled.Status()), scheduled.Body)
	}
	task, err := c.GetTaskWithResponse(ctx, topic, id)
	check(err, nil)
	if task.JSON200 == nil || task.JSON200.State != "pending" {
		check(fmt.Errorf("the task was answered %s", task.Status()), task.Body)
	}
	from := time.Now().Format(time.RFC3339)
	list, err := c.ListTasksWithResponse(ctx, &notyet.ListTasksParams{Topic: &topic, From: &from})
	check(err, nil)
	if list.JSON200 == nil || len(list.JSON200.Tasks) != 1 {
		check(fmt.Errorf("the list was answered %s", list.Status()), list.Body)
	}
	cancelled, err := c.CancelTaskByPathWithResponse(ctx, topic, id, &notyet.CancelTaskByPathParams{Wait: &wait})
	check(err, nil)
	if cancelled.JSON200 == nil {
		check(fmt.Errorf("the cancel was answered %s", cancelled.Status()), cancelled.Body)
	}
	fmt.Println(cancelled.JSON200.State)
}
