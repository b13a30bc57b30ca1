package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
)

// carried holds the flags for what is delivered besides the key.
type carried struct {
	Value     *string  `help:"Record value. Without one of these flags it is read from standard input, unless that is a terminal." placeholder:"TEXT" xor:"value"`
	ValueFile string   `help:"Read the value from a file, byte for byte; - is standard input." placeholder:"FILE" type:"path" xor:"value"`
	NullValue bool     `help:"Send Kafka's null as the value." xor:"value"`
	Header    []string `help:"A header of your own, delivered as it is; may be repeated." placeholder:"NAME=VALUE" sep:"none" short:"H"`
}

// content is the key, with the value and the headers of the flags.
func (c *carried) content(key *string, stdin io.Reader) (deadletter.Content, error) {
	var headers []deadletter.Header
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return deadletter.Content{}, command.Usage("--header without =: write NAME=VALUE") // it may be a secret
		}
		headers = append(headers, deadletter.Header{Key: name, Value: &value})
	}
	value, err := c.value(stdin)
	if err != nil {
		return deadletter.Content{}, err
	}
	var bytes []byte
	if key != nil {
		bytes = []byte(*key)
	}
	out := deadletter.NewContent(schemas.Body{Key: bytes, Value: value})
	out.Headers = headers
	return *out, nil
}

func (c *carried) value(stdin io.Reader) ([]byte, error) {
	switch {
	case c.NullValue:
		return nil, nil
	case c.Value != nil:
		return []byte(*c.Value), nil
	case c.ValueFile != "" && c.ValueFile != "-":
		value, err := os.ReadFile(c.ValueFile)
		if err != nil {
			return nil, command.Usage("--value-file: %v", err)
		}
		return notNull(value), nil
	case c.ValueFile == "" && command.IsTerminal(stdin):
		return nil, command.Usage("what? say --value, --value-file or --null-value, or pipe the value in")
	}
	value, err := io.ReadAll(stdin)
	if err != nil {
		return nil, fmt.Errorf("reading the value from standard input: %w", err)
	}
	return notNull(value), nil
}

func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
