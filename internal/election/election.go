package election

import "context"

// Assignment is one published distribution of the slots, in the view of one member. An Assignment
// is a snapshot: do not modify the slices.
type Assignment struct {
	// Epoch rises strictly over the life of the installation. 0: nothing is assigned yet.
	Epoch int64
	// Slots are the slots assigned to this member, ascending, the kept ones included.
	Slots []int
	// Members are the ids of all members alive at the time of the assignment, sorted.
	Members []string
}

// Epochs allocates fencing epochs from the database, rising even if the ensemble was rebuilt.
type Epochs interface {
	// NextEpoch returns a number greater than all earlier ones, of any process. The call may block
	// until ctx ends, and is never on the path of trust.
	NextEpoch(ctx context.Context) (int64, error)
}

// Source tells a dispatcher its share of the slots. All methods but Run return at once and may be
// called from any goroutine, also before and after Run.
type Source interface {
	// Run joins, leads when elected, and leaves when ctx ends. Run blocks until then and is called
	// once. An end by ctx returns nil.
	Run(ctx context.Context) error
	// Watch is signalled (buffered 1, coalescing) whenever Current, Trusted or the members may have
	// changed. Only one reader may receive: a received signal is gone.
	Watch() <-chan struct{}
	// Current returns the newest known assignment; its Epoch never falls. Trust is another matter.
	Current() Assignment
	// Trusted reports whether this member has heard from the ensemble within the trust window, by
	// this machine's clocks. An untrusted member must claim nothing and release nothing.
	Trusted() bool
	// Report says whether this process can do the work of an owner, and why not. The owner's
	// process reports again and again. If a member has been unable to work for a while, and another
	// one works, the member leaves. Its slots go to the others. The member comes back with its
	// first success.
	Report(err error)
	// Alive reports whether a member's ephemeral znode existed at the last reading. False means:
	// the member's slots can be taken over. False is only returned while trusted. True can also
	// mean "unknown".
	Alive(member string) bool
}
