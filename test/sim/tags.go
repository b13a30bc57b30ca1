package sim

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/chaos/history"
)

// tagsOf returns the tags of a request, which follow from its number; "" of every third.
func tagsOf(op int64) string {
	switch op % 3 {
	case 0:
		return ""
	case 1:
		return fmt.Sprint("t", op%5)
	}
	return fmt.Sprintf("t%d,even:%t", op%5, op%2 == 0)
}

// tag writes the tags of a request.
func tag(r *kgo.Record, op *history.Op) {
	if tags := tagsOf(op.N); tags != "" {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: schemas.HeaderTag, Value: []byte(tags)})
	}
}

// judgeTags: each task that is there, and was not cancelled, is listed by each of its tags, once, and nothing else is.
func (w *world) judgeTags() {
	if w.several > 0 { // some tasks stand in one database, some in another
		return
	}
	rows, err := w.looks.Query("SELECT topic, id, body FROM tasks WHERE LENGTH(body) > 0")
	if err != nil {
		w.find("sim", "reading the tags of tasks: %v", err)
		return
	}
	defer func() { _ = rows.Close() }()
	want := map[string][]string{}
	for n := range int64(5) {
		want[fmt.Sprint("t", n)] = nil
	}
	for rows.Next() {
		var topic, id string
		var body []byte
		if err := rows.Scan(&topic, &id, &body); err != nil {
			w.find("sim", "reading the tags of tasks: %v", err)
			return
		}
		for _, tag := range schemas.Tags(schemas.BodyTag(body)) {
			want[tag] = append(want[tag], topic+"/"+id)
		}
	}
	for tag, tasks := range want {
		got := append(w.listed(tag, false), w.listed(tag, true)...)
		slices.Sort(tasks)
		slices.Sort(got)
		if !slices.Equal(tasks, got) {
			w.find("tags", "%d tasks have the tag %s, and %d are listed: %v, %v", len(tasks), tag, len(got), tasks, got)
		}
	}
}

func (w *world) listed(tag string, ended bool) (got []string) {
	for f := (look.ListFilter{Tag: tag, Limit: 100, Ended: ended}); ; {
		page, err := look.New(w.admin).List(context.Background(), f)
		if err != nil {
			w.find("sim", "listing the tag %s: %v", tag, err)
			return got
		}
		for _, v := range page.Tasks {
			if v.State != "cancelled" && v.State != "stopped" {
				got = append(got, v.Topic+"/"+v.ID)
			}
		}
		if f.After = page.More; f.After == nil {
			return got
		}
	}
}
