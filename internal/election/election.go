package election

import "context"

// Assignment is one published sharing of the slots, as one member sees it. It is a snapshot: its slices must not be modified.
type Assignment struct {
	// Epoch is strictly rising over the life of the installation; 0 means that nothing has been assigned yet.
	Epoch int64
	// Slots are the slots assigned to this member, ascending. A slot kept across assignments is simply there again.
	Slots []int
	// Members are the ids of all members alive as this assignment was made, sorted.
	Members []string
}

// Epochs allocates fencing epochs from the database, so that they rise even when the ensemble was rebuilt.
type Epochs interface {
	// NextEpoch returns a number greater than every one it has returned before, to any process. It may block until ctx
	// ends; it is never called on the path that keeps a member trusted.
	NextEpoch(ctx context.Context) (int64, error)
}

// Source is what a dispatcher needs to know about its share. All methods but Run return at once and may be called from
// any goroutine, also before and after Run.
type Source interface {
	// Run joins, leads when elected, and leaves cleanly when ctx ends. It blocks until then, is called once, and returns
	// nil when it ended because ctx did.
	Run(ctx context.Context) error
	// Watch is signalled (buffered 1, coalescing) whenever Current, Trusted or the members may have changed. It has one
	// reader: a signal that is taken is gone.
	Watch() <-chan struct{}
	// Current is the newest known assignment; its Epoch never falls. It says nothing about trust.
	Current() Assignment
	// Trusted reports whether this member has heard from the ensemble within the trust window, by the monotonic clock.
	// While it is false the member must claim nothing and release nothing.
	Trusted() bool
	// Alive reports whether a member's ephemeral existed when it was last read. False is a statement (that member can be
	// taken over) and is only made while trusted; true also means "unknown".
	Alive(member string) bool
}
