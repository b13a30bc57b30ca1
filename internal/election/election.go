package election

import "context"

// Assignment is one published distribution of the slots, as one member sees it. It is a snapshot:
// do not modify its slices.
type Assignment struct {
	// Epoch rises strictly over the life of the installation. 0 means that nothing has been
	// assigned yet.
	Epoch int64
	// Slots are the slots assigned to this member, ascending, including those that it keeps.
	Slots []int
	// Members are the ids of all members that were alive when this assignment was made, sorted.
	Members []string
}

// Epochs allocates fencing epochs from the database, so that they rise even if the ensemble was
// rebuilt.
type Epochs interface {
	// NextEpoch returns a number greater than every one it has returned before, to any process. It
	// may block until ctx ends. It is never called on the path that keeps a member trusted.
	NextEpoch(ctx context.Context) (int64, error)
}

// Source tells a dispatcher its share of the slots. All methods but Run return at once and may be
// called from any goroutine, also before and after Run.
type Source interface {
	// Run joins, leads when elected, and leaves when ctx ends. It blocks until then and is called
	// once. It returns nil if it ended because ctx did.
	Run(ctx context.Context) error
	// Watch is signalled (buffered 1, coalescing) whenever Current, Trusted or the members may have
	// changed. It has one reader: a signal that is received is gone.
	Watch() <-chan struct{}
	// Current returns the newest known assignment; its Epoch never falls. It says nothing about
	// trust.
	Current() Assignment
	// Trusted reports whether this member has heard from the ensemble within the trust window, by
	// this machine's clocks. While it is false the member must claim nothing and release nothing.
	Trusted() bool
	// Report says whether this process can do the work of an owner, and why not. The owner's process
	// reports again and again. A member that has not been able to work for a while, while another one
	// is, leaves, and its slots go to the others. The member comes back when it can work.
	Report(err error)
	// Alive reports whether a member's ephemeral znode existed when it was last read. False means
	// that the member's slots can be taken over; it is only returned while trusted. True can also
	// mean "unknown".
	Alive(member string) bool
}
