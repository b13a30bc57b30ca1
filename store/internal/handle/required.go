package handle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/tables"
)

// The installation may require an ability of its programs, by a word: for a while, or for good. A
// program ends where it does not know a word, and the dispatchers' leader gives slots only to those
// that know all of them (docs/adr/0044).

// Spread is required while the number of slots changes: a program places tasks by base, target and
// spread of slots, and an owner moves those that belong elsewhere.
const Spread = "spread"

// Shards is required for good once the installation has a second database: a program may leave out
// the records of the other one's targets.
const Shards = "shards"

// Can are the words that this program knows.
func Can() []string { return []string{Spread, Shards} }

// ErrRequired: the installation requires what this program does not know.
var ErrRequired = errors.New("the installation requires what this program does not know")

// required begins the names of rows in meta with a word; value 1: it is required now.
const required = "required."

// Require notes whether a word is required from now on. A caller that adds one raises the turn of
// all slots in the same transaction: so each owner reads the words before its next claim.
func Require(ctx context.Context, tx *sql.Tx, word string, needed bool) error {
	name, value := []byte(required+word), 0
	if needed {
		value = 1
	}
	if err := EnsureMeta(ctx, tx, name, 0); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE meta SET value = ? WHERE name = ?", value, name)
	return wrap.Err(err, "noting whether %s is required", word)
}

// Required returns the words for what is required now, in order.
func (h *Handle) Required(ctx context.Context) ([]string, error) {
	words, err := tables.Fetch(ctx, h.DB, func(r *sql.Rows, name *string) error { return r.Scan(name) },
		"SELECT name FROM meta WHERE name > ? AND name < ? AND value > 0 ORDER BY name", []byte(required), []byte(required+"~"))
	for i := range words {
		words[i] = strings.TrimPrefix(words[i], required)
	}
	return words, wrap.Err(err, "reading what the installation requires")
}

// CheckRequired returns ErrRequired if a word is required that this program does not know.
func (h *Handle) CheckRequired(ctx context.Context) error {
	words, err := h.Required(ctx)
	if err != nil {
		return err
	}
	unknown := slices.DeleteFunc(words, func(word string) bool { return slices.Contains(Can(), word) })
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; run the release that the other services have (notyet cluster)", ErrRequired, strings.Join(unknown, ", "))
}
