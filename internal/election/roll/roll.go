// Package roll names what the election and the database tell each other, where dispatchers elect through
// the database: who is a candidate, and what was shared out. The store keeps it.
package roll

// Candidate is a process that takes part in the election, as one row.
type Candidate struct {
	Instance string // the process start; names the row
	ID       string // the member
	Seq      int64  // rises in the order of joining
	Beat     int64  // changes as long as the process lives
	Data     []byte // what the process says of itself
}

// Page is everything, as it was read: the assignment first.
type Page struct {
	Life       string // of the database: see store/life.go
	Epoch      int64  // of the assignment; 0: there is none
	Data       []byte // the assignment
	Candidates []Candidate
}
