package intake

import (
	"errors"
	"time"

	"github.com/notyet/notyet/store/internal/handle"
)

// mergeBudget is how much one transaction merges, in bytes that are copied: see task.Verdict.
// Without a bound, a batch of many small requests for one large task would keep its transaction
// busy for minutes.
const mergeBudget = 256 << 20

// mergePatience bounds the same in time, and the decisions about timers. On a slow or busy machine, merging up to the budget takes
// longer than the server lets the transaction's connection be silent.
const mergePatience = handle.IdleTimeout / 5

// merged is what a transaction has merged so far.
type merged struct {
	bytes int
	took  time.Duration // also with decisions about timers
}

// enough tells that the rest must wait for another transaction.
func (m *merged) enough() bool { return m.bytes > mergeBudget || m.took > mergePatience }

// errMerging: a batch merges more than a transaction may.
var errMerging = errors.New("the batch merges too much for one transaction")
