// Package flight holds the slots that a dispatcher owns and the tasks in flight, and decides what becomes of them. What the loops have read,
// sent and heard goes in; what they are to read, send, write and tell comes out.
//
// Each method with a capital letter is something that happened, or a question of a loop. It takes one step under the lock, and returns what
// there is to do. Nothing here waits for a database, a broker or the index, and nothing runs by itself: the loops of package dispatcher do
// that, and are woken by kicks. A task is a handle to them: its fields change here alone.
package flight

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/task"
)

// machine holds the owned slots and every task that is in flight: claimed, and not closed. Its lock makes one step of what belongs
// together, whichever loop reports it:
//
//   - a slot and its tasks: what comes in for a slot that was abandoned is thrown away, and nothing of it stays counted;
//   - a task's status, what it takes in memory (staging), and that it leaves (leave);
//   - an outlet (see outlets) and the tasks that it has: one that falls silent, and that they leave their slots; an answer, and its
//     outcome;
//   - a slot that is claimed and one that is given back: never both.
//
// Methods with a capital letter take flight.mu, and the loops call them. Methods with a small letter, of Flight and of what it holds, are
// called under flight.mu. Two kinds need no lock: prepare and readAgain, which see tasks that nobody else has, and those of backlog and inbox,
// which have locks of their own that guard queues alone. Locks are taken in this order: flight.mu, and then backlog.mu, inbox.mu, or that of
// the origins' room.
type machine struct {
	env
	backlog *backlog // whose bodies are to be read
	inbox   *inbox   // what is to be settled
	origins Origins  // nil: no callbacks are made

	mu          sync.Mutex
	slots       map[int]*ownedSlot // Took adds; abandon and Released delete
	strays      strays             // slots that are not worked on
	lost        map[int]lostSlot   // slots that were abandoned, and not taken since
	entries     int                // tasks in slots, with their bodies or without
	staging     staging            // Logged adds, whatever ends a task removes
	unsettled   unsettled
	unannounced unannounced
	proofs      Proofs              // of tasks in doubt: Took adds, Logged takes
	stuck       map[int64]*Task     // with a producer, and out of their slots, or of slots that were lost; by seq
	due         dueHeap             // staged tasks: Logged adds, TakeDue takes
	underWay    map[*Task]time.Time // callbacks, since when
	runs        []*Task             // of timers, that wait for what the database says
	outlets     *outlets
	gates       *gates
}

// New makes it with nothing in flight. Without origins no callbacks are made.
func New(cfg Config, clock Clock, origins Origins, metrics *Metrics, kicks Kicks, log *zap.Logger) *Flight {
	fl := &machine{
		env:     env{cfg: cfg, clock: clock, log: log, metrics: metrics, kicks: kicks},
		backlog: newBacklog(cfg.Tenants), inbox: &inbox{}, origins: origins, slots: map[int]*ownedSlot{}, strays: strays{}, lost: map[int]lostSlot{}, proofs: Proofs{}, stuck: map[int64]*Task{},
		staging: staging{maxTasks: cfg.StageTasks, maxBytes: cfg.StageBytes}, unsettled: unsettled{pace: firstPace},
		unannounced: unannounced{published: map[*Task]announcement{}}, underWay: map[*Task]time.Time{},
	}
	fl.gates = newGates(fl)
	fl.outlets = newOutlets(&fl.env, &fl.unsettled, fl.gates)
	owned := Owned{fl}
	return &Flight{owned, Claims{owned}, Bodies{fl}, Due{owned}, Outcomes{fl}, Suspects{fl}, Settling{fl}, Announcing{fl}, Runs{fl}, Policies{fl}, Owning{owned}, Changing{owned}}
}

// Flight is what is in flight: a small type for each loop, and what concerns all of them.
type Flight struct {
	Owned
	Claims     Claims
	Bodies     Bodies
	Due        Due
	Outcomes   Outcomes
	Suspects   Suspects
	Settling   Settling
	Announcing Announcing
	Runs       Runs
	Policies   Policies
	Owning     Owning
	Changing   Changing
}

// Stop says that the dispatcher ends: its slots are to be given back, and nothing more is claimed or called back.
func (fl *Flight) Stop() { fl.stopping.Store(true) }

// Stopping says that the dispatcher ends.
func (fl Owned) Stopping() bool { return fl.stopping.Load() }

// Placement says to which partition a record goes. It has a lock of its own.
func (fl *Flight) Placement() *kafka.Placement { return fl.outlets.where }

// Left is how many slots are owned, or not clearly given back.
func (fl *Flight) Left() int {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return len(fl.slots) + len(fl.strays)
}

// unstage forgets what staging held, if it still holds it.
func (fl *machine) unstage(t *Task) {
	if fl.staging.remove(t) {
		t.dropContent()
		fl.kicks.Fetch.Now()
	}
}

// Origins give room for requests to the origins of callbacks, on account of tenants. Enter does not block.
type Origins interface {
	Enter(origin, tenant string) (*callback.Seat, callback.Absence)
}

// gates keep the operators' policies in force: targets that are paused, or limited. Tasks that a gate does not let through soon are moved
// to held places, and called back from there.
type gates struct {
	flight *machine
	anew   int // how often lookAgain was called
	slots  int // of the installation, as the rows of owned slots say

	byTopic map[string]*Gate
	lanes   map[uint32][]*Gate // the same, by what a task's lane tells of its topic
	key     task.LaneKey       // of the lanes; read with the policies
}

func newGates(fl *machine) *gates {
	return &gates{flight: fl, byTopic: map[string]*Gate{}, lanes: map[uint32][]*Gate{}}
}

// outlets are those in use, and what the producers hold for them.
type outlets struct {
	*env
	unsettled *unsettled
	where     *kafka.Placement // to which outlet a record goes; it has a lock of its own
	byKey     map[outletKey]*Outlet
	waiting   map[*Outlet]bool  // for which something waits
	unmet     map[string]*unmet // by tenant
	refusals  refusals
	buffered  buffered
	atOrigins buffered // of it, what origins have
	probes    int      // under way
	gates     *gates
}

func newOutlets(env *env, unsettled *unsettled, gates *gates) *outlets {
	return &outlets{env: env, unsettled: unsettled, gates: gates, where: kafka.NewPlacement(), byKey: map[outletKey]*Outlet{}, waiting: map[*Outlet]bool{}, unmet: map[string]*unmet{}}
}

// buffered is what the producers hold for all outlets.
type buffered struct{ tasks, bytes int }
