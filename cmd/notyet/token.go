package main

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/command"
)

type tokenCmd struct {
	New tokenNewCmd `cmd:"" help:"Make a token, and its entry for http.tokens."`
}

type tokenNewCmd struct {
	command.Settings
	command.AsJSON
	Name    string   `arg:"" help:"The owner's name, for the audit log." name:"name"`
	Role    string   `help:"read (no values), operate (values, schedule, cancel, stop, fire, replay) or admin (all)." placeholder:"ROLE" required:""`
	Topics  []string `default:"*" help:"For target topics that match one of these patterns, such as orders.*; * is all of them." placeholder:"PATTERN,…"`
	Expires string   `help:"When the token ends: a date (its beginning in UTC), or RFC 3339; default never." placeholder:"TIME"`
}

func (tokenNewCmd) Help() string {
	return `Prints the token, which is not stored, and the entry to add to the file in http.tokens (NOTYET_HTTP_TOKENS). The
entry only holds the token's SHA-256. Services read the file again when it changes.

Examples:
  notyet token new dashboard --role read
  notyet token new orders-team --role operate --topics 'orders,orders.*' --expires 2027-12-31`
}

// made is the output of token new.
type made struct {
	Token string       `json:"token"`
	Entry access.Entry `json:"entry"`
}

func (c *tokenNewCmd) Run(a *app) error {
	role, err := access.ParseRole(c.Role)
	if err != nil {
		return command.Usage("--role: %v", err)
	}
	if err := access.CheckName(c.Name); err != nil {
		return command.UsageError{Err: err}
	}
	if err := access.CheckTopics(c.Topics); err != nil {
		return command.Usage("--topics: %v", err)
	}
	expires, err := access.ParseExpires(c.Expires)
	if err != nil {
		return command.Usage("--%v", err)
	}
	if c.Expires != "" && !expires.After(time.Now()) {
		return command.Usage("--expires: %s is past: write a later time", c.Expires)
	}
	token, entry := access.NewToken(c.Name, role, c.Topics)
	entry.Expires = c.Expires
	if c.JSON {
		return a.JSON(made{token, entry})
	}
	text, err := yaml.Marshal([]access.Entry{entry})
	if err != nil {
		return fmt.Errorf("writing the entry: %w", err)
	}
	_, err = fmt.Fprintf(a.Stdout, "token: %s\nentry:\n%s", token, text)
	return err
}
