package main

import (
	"encoding/json"
	"io"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
)

type auditCmd struct {
	List   auditListCmd   `cmd:"" help:"List changes that were made through API and command line, the latest first."`
	Export auditExportCmd `cmd:"" help:"Write changes as JSON, one a line, the latest first."`
}

type auditFilter struct {
	asking
	selected
	Who  string `help:"Only changes by this token, or user@host." placeholder:"NAME"`
	What string `help:"Only changes of this kind: schedule, cancel, stop, fire, replay, purge, operation, reconcile, 'intake skip', …" placeholder:"KIND"`
	From string `help:"Only changes at or after: RFC 3339, Unix milliseconds, or a duration ago (24h)." placeholder:"TIME"`
	To   string `help:"Only changes before, in the forms of --from." placeholder:"TIME"`
}

const auditPage = 1000

// each passes every change selected by the flags to f, the latest first, until f returns false.
// page is the size of the pages read.
func (c *auditFilter) each(a *app, page int, f func(api.AuditEntry) (more bool, err error)) error {
	wanted := api.AuditFilter{Who: c.Who, What: c.What, Topic: c.Topic, TaskID: c.ID, Limit: page}
	var err error
	if wanted.From, wanted.To, err = span(c.From, c.To, -1); err != nil {
		return err
	}
	b, err := a.backend(c.asking)
	if err != nil {
		return err
	}
	defer b.close()
	for {
		found, err := b.Audit(a.Ctx, wanted)
		if err != nil {
			return err
		}
		for _, e := range found.Entries {
			if more, err := f(e); err != nil || !more {
				return err
			}
		}
		if wanted.Cursor = found.Cursor; wanted.Cursor == "" {
			return nil
		}
	}
}

type auditListCmd struct {
	auditFilter
	Limit int `default:"100" help:"At most this many, 1 to 100000." placeholder:"N" short:"n"`
}

func (auditListCmd) Help() string {
	return whereFrom + `
WHO is the name of the token, or user@host of a command that worked on the database itself. Entries are kept for audit.retention.
A request that goes through Kafka is noted before it is sent, so the log may hold one that Kafka did not take.

Examples:
  notyet audit list --from 24h
  notyet audit list orders 4711 --json | jq '.[].who'`
}

func (c *auditListCmd) Run(a *app) error {
	if c.Limit < 1 || c.Limit > 100_000 {
		return command.Usage("--limit %d: write 1 to 100000", c.Limit)
	}
	entries := []api.AuditEntry{}
	if err := c.each(a, min(c.Limit, auditPage), func(e api.AuditEntry) (bool, error) {
		entries = append(entries, e)
		return len(entries) < c.Limit, nil
	}); err != nil {
		return err
	}
	if c.JSON {
		return a.JSON(entries)
	}
	table(a, "no changes", []any{"AT", "WHO", "VIA", "WHAT", "TOPIC", "TASK", "COUNT", "FILTER"}, entries, func(e api.AuditEntry) []any {
		who := e.Who
		if e.User != "" {
			who += " (" + e.User + ")"
		}
		return []any{stamp(e.At), command.Plain(who), e.Via, e.What, command.Plain(e.Topic), command.Plain(e.Task), e.Count, shortened(command.Plain(string(e.Extra)), 80)}
	})
	return nil
}

type auditExportCmd struct {
	auditFilter
	Output string `help:"Write here instead of standard output." placeholder:"FILE" short:"o" type:"path"`
}

func (auditExportCmd) Help() string {
	return whereFrom + `
Every change as one JSON object a line, with the fields of GET /api/v1/audit. To go on where an export ended, let the next one
begin a minute earlier, and let its lines replace those with the same id: the count of a change grows while it is being made.

Examples:
  notyet audit export --from 2027-01-01T00:00:00Z --to 2027-02-01T00:00:00Z -o audit-2027-01.ndjson
  notyet audit export --from 25h | jq -r 'select(.what == "purge" or .what == "operation" and .filter.operation == "purge") | .who'`
}

// Run writes NDJSON, with or without --json.
func (c *auditExportCmd) Run(a *app) error {
	return a.export(c.Output, "changes", func(w io.Writer) (n int, err error) {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		err = c.each(a, auditPage, func(e api.AuditEntry) (bool, error) {
			n++
			return true, enc.Encode(e)
		})
		return n, err
	})
}
