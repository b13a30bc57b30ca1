// Package roll is the language between election and database, for elections through the database:
// the candidates and the assignment go in and out. The store keeps both.
package roll

// Candidate is one row: a process in the election.
type Candidate struct {
	Instance string // the process start; names the row
	ID       string // the member
	Seq      int64  // rises in the order of joining
	Beat     int64  // changes as long as the process lives
	Data     []byte // what the process says of itself
}

// Page is everything, as read: the assignment first.
type Page struct {
	Life       string // of the database: see store/life.go
	Epoch      int64  // of the assignment; 0: there is none
	Data       []byte // the assignment
	Candidates []Candidate
}
