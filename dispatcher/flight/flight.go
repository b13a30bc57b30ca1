// Package flight holds the slots and the tasks in flight of a dispatcher, and decides what becomes
// of them. Things read, sent and heard by the loops go in; things to read, send, write and tell
// come out.
//
// Each method with a capital letter is an event, or a question of a loop. It takes one step under
// the lock, and returns what there is to do. Nothing here waits for a database, a broker or the
// index, and nothing runs by itself: kicks wake the loops of package dispatcher, and the loops do
// the work. A task is a handle to the loops: its fields change here alone.
package flight

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight/target"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// machine holds the owned slots and every task in flight: claimed, and not closed. Its lock makes
// one step of what belongs together, whichever loop reports:
//
//   - a slot and its tasks: reports for an abandoned slot are thrown away, and nothing of it stays
//     counted;
//   - a task's status, its memory (staging), and its leaving (leave);
//   - an outlet (see outlets) and its tasks: an outlet falls silent, and they leave their slots; an
//     answer, and its outcome;
//   - a slot is claimed or given back: never both.
//
// Methods with a capital letter take machine.mu, and the loops call them, each by its own small
// type. Methods with a small letter are called under machine.mu. Two kinds need no lock: prepare
// and readAgain, whose tasks nobody else has, and those of backlog and inbox, with locks of their
// own that guard queues alone. Locks are taken in this order: machine.mu, and then backlog.mu
// or inbox.mu.
type machine struct {
	env
	backlog *backlog // whose bodies are to be read
	inbox   *inbox   // what is to be settled

	mu          sync.Mutex
	slots       map[int]*ownedSlot // Took adds; abandon and Released delete
	strays      strays             // slots that are not worked on
	lost        map[int]lostSlot   // slots that were abandoned, and not taken since
	entries     int                // tasks in slots, with their bodies or without
	parked      int                // tasks in slots' memories
	staging     staging            // Logged adds, whatever ends a task removes
	unsettled   unsettled
	unannounced unannounced
	proofs      Proofs              // of tasks in doubt: Took adds, Logged takes
	stuck       map[int64]*Task     // with a producer, and out of their slots, or of slots that were lost; by seq
	delivered   map[int][]line.Sent // out of strays, without a stored end, by slot: see keepDelivered; Clear deletes
	due         dueHeap             // staged tasks: Logged adds, Take takes
	runs        []*Task             // of timers, that wait for what the database says
	outlets     *outlets
	gates       *gates
}

// New makes a Flight with nothing in flight.
func New(cfg Config, clock Clock, metrics *Metrics, kicks Kicks, log *zap.Logger) *Flight {
	fl := &machine{
		env:     env{cfg: cfg, clock: clock, log: log, metrics: metrics, kicks: kicks},
		backlog: newBacklog(cfg.Tenants), inbox: &inbox{}, slots: map[int]*ownedSlot{}, strays: strays{}, lost: map[int]lostSlot{}, proofs: Proofs{}, stuck: map[int64]*Task{}, delivered: map[int][]line.Sent{},
		staging: staging{maxTasks: cfg.StageTasks, maxBytes: cfg.StageBytes}, unsettled: unsettled{pace: firstPace},
		unannounced: unannounced{published: map[*Task]announcement{}},
	}
	fl.gates = newGates(fl)
	fl.outlets = newOutlets(&fl.env, &fl.unsettled, fl.gates)
	fl.outlets.limitCalls(1)
	owned := Owned{fl}
	return &Flight{owned, Claims{owned}, Bodies{fl}, Due{owned}, Outcomes{fl}, Suspects{fl}, Settling{fl}, Announcing{fl}, Runs{fl}, Policies{fl}, Owning{owned}, Changing{owned}}
}

// Flight is a small type for each loop, and a few questions of all.
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

// Stop says that the dispatcher ends: its slots are to be given back, and nothing more is claimed
// or called back.
func (fl *Flight) Stop() { fl.stopping.Store(true) }

// Stopping says whether the dispatcher ends.
func (fl Owned) Stopping() bool { return fl.stopping.Load() }

// Placement says to which partition a record goes, under a lock of its own.
func (fl *Flight) Placement() *kafka.Placement { return fl.outlets.where }

// Left is how many slots are owned, or not clearly given back.
func (fl *Flight) Left() int {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return len(fl.slots) + len(fl.strays)
}

// unstage forgets a task in staging, if staging still holds it.
func (fl *machine) unstage(t *Task) {
	if fl.staging.remove(t) {
		t.dropContent()
		fl.kicks.Fetch.Now()
	}
}

// gates keep the operators' policies in force: targets are paused, or limited. Tasks that cannot
// pass a gate soon are moved to held places, and called back from there.
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

// outlets are those in use, and the producers' records for them.
type outlets struct {
	*env
	unsettled *unsettled
	where     *kafka.Placement // to which outlet a record goes; it has a lock of its own
	byKey     map[outletKey]*Outlet
	waiting   map[*Outlet]bool  // for which something waits
	unmet     map[string]*unmet // by tenant
	refusals  refusals
	buffered  buffered
	atOrigins int            // bytes of it that origins have
	ofTenant  map[string]int // of those, by tenant
	origins   *target.Origins
	calls     map[*Task]call // under way
	probes    int            // under way
	gates     *gates
}

func newOutlets(env *env, unsettled *unsettled, gates *gates) *outlets {
	return &outlets{env: env, unsettled: unsettled, gates: gates, where: kafka.NewPlacement(), byKey: map[outletKey]*Outlet{}, waiting: map[*Outlet]bool{}, unmet: map[string]*unmet{}, ofTenant: map[string]int{}, origins: target.NewOrigins(), calls: map[*Task]call{}}
}

// call is a callback under way.
type call struct {
	since time.Time
	seat  *share.Seat
}

// buffered are the producers' records for all outlets.
type buffered struct{ tasks, bytes int }
