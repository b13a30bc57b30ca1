package arch

// module is the path that our own imports begin with.
const module = "github.com/notyet/notyet/"

// anything, as the only entry of a row, lets a package import every other of ours.
const anything = "*"

// arrows is the whole arrow table: for each part of the tree, which other parts its code may import. A part covers the
// packages below it, and those may import one another. A package that no row covers is a violation: a new part begins here.
var arrows = map[string][]string{
	"schemas": {},
	"task":    {"schemas", "timer", "internal/slots"},

	// Stages: the flow from intake to delivery. They meet in schemas and in the store's rows, never in one another. callback is a client,
	// as Kafka's is: the dispatcher sends with it.
	"timer":    {},
	"producer": {"schemas"},
	"consumer": {"schemas", "internal/loop"},
	"store":    {"store/internal", "task", "internal/defaults", "internal/loop", "internal/machine", "internal/election/roll", "internal/wrap"},
	// What changes tasks. No other package of the store imports it. It opens a store in its tests only, which are those of all packages of the store.
	"store/intake": {"schemas", "task", "timer", "store/line", "store/look", "store/internal", "store", "internal/slots", "internal/faultpoint", "internal/wrap"},
	// Questions go to store/look, which never writes. The intake asks too, and not the reverse: look opens a store in its tests only.
	"store/look": {"schemas", "task", "store/internal", "store", "internal/wrap"},
	// What the owner of a slot asks for. What puts tasks into the line, or decides what reports make of them, is not to be seen from here.
	"store/line": {"schemas", "task", "timer", "store/internal", "internal/slots", "internal/wrap"},
	// What operators say and processes agree on. The dispatcher reads policies there, and brings a new number of slots about.
	"store/admin": {"schemas", "task", "store/internal", "internal/slots", "internal/loop", "internal/share", "internal/wrap"},
	// Dead letters: read, counted, forgotten. Other packages of the store write them, so it imports none of those; its tests are the store's.
	"store/letters": {"task", "store/internal", "internal/wrap"},
	// Which of several databases has a target. Before a target leaves one, its tasks, letters and timers are asked for.
	"store/shards": {"schemas", "task", "store", "store/intake", "store/admin", "store/look", "store/letters", "store/internal", "internal/shardmap", "internal/loop", "internal/wrap"},
	// Events until Kafka has them. The packages that decide events put them in themselves. It opens a store in its tests only.
	"store/outbox":   {"schemas", "store/internal", "store", "internal/wrap"},
	"store/internal": {"schemas", "task", "timer", "internal/slots", "internal/shardmap", "internal/machine", "internal/loop", "internal/faultpoint", "internal/wrap"},
	"events":         {"schemas", "store/outbox", "store", "internal/kafka", "internal/faultpoint"},
	"scanner":        {"schemas", "task", "store", "store/intake", "store/admin", "store/look", "store/outbox", "store/shards", "internal/shardmap", "events", "internal/defaults", "internal/index", "internal/kafka", "internal/loop", "internal/tracing", "internal/faultpoint"},
	"dispatcher":     {"schemas", "task", "store", "store/intake", "store/admin", "store/line", "store/look", "store/letters", "store/outbox", "events", "callback", "internal/defaults", "internal/slots", "internal/index", "internal/sendlog", "internal/election", "internal/copies", "internal/kafka", "internal/loop", "internal/tracing", "internal/faultpoint", "internal/share"},
	"callback":       {"schemas", "internal/defaults", "internal/reload"},
	"deadletter":     {"schemas", "task", "store", "store/intake", "store/admin", "store/look", "store/letters", "internal/index", "internal/sendlog", "internal/kafka", "internal/faultpoint", "internal/loop", "internal/wrap"},

	// Substrate: each part stands alone, but for defaults, places and loops.
	"internal/defaults": {},
	"internal/slots":    {"schemas"},
	"internal/shardmap": {"internal/slots"},
	"internal/share":    {},
	"internal/index":    {"schemas", "internal/defaults", "internal/slots", "internal/kafka", "internal/loop", "internal/wrap"}, // the last but one for wakes
	"internal/sendlog":  {"schemas", "internal/defaults", "internal/wrap"},
	"internal/election": {"schemas", "internal/defaults", "internal/loop", "internal/machine", "internal/election/roll", "store", "internal/wrap"}, // the last in tests
	"internal/config":   {"schemas", "internal/defaults", "internal/reload"},
	"internal/reload":   {},
	"internal/figures":  {},
	"internal/access":   {"internal/reload", "internal/loop", "internal/share"},
	"internal/ops":      {"internal/access", "internal/defaults", "internal/reload", "internal/share"},
	"internal/kafka":    {"schemas", "internal/defaults", "internal/loop", "internal/wrap"},
	"internal/copies":   {"internal/kafka", "internal/loop"},
	"internal/tracing":  {},
	"internal/embedded": {"internal/kafka"},
	"test/arch":         {},

	"internal/election/roll": {}, // what the election and the database tell each other

	"internal/machine":    {},
	"internal/loop":       {},
	"internal/wrap":       {},
	"internal/command":    {anything}, // flags and settings of the programs
	"internal/faultpoint": {},         // named by whoever has a place to die at

	"api":      {"schemas", "task", "timer", "store", "store/intake", "store/admin", "store/look", "store/letters", "deadletter", "internal/access", "internal/figures", "internal/tracing", "internal/loop", "internal/share", "internal/shardmap", "store/shards"},
	"docs":     {},
	"console":  {"schemas", "docs", "api", "deadletter", "internal/access", "internal/loop", "internal/share", "internal/shardmap", "store", "store/admin", "store/look", "task"}, // the last five in tests, which fill a database
	"doctor":   {"schemas", "store", "store/admin", "store/look", "internal/access", "internal/config", "internal/kafka", "internal/index", "internal/election", "internal/sendlog"},
	"test/e2e": {anything}, // tests of the assembled pipeline
	"test/sim": {anything}, // the whole pipeline in one process and virtual time
	// Fault runs look at what the program leaves behind, and never run it in their own process.
	"test/chaos":   {"schemas", "internal/index", "internal/sendlog", "internal/kafka", "internal/loop", "internal/machine", "test/freeport"},
	"test/bench":   {"schemas", "internal/kafka", "internal/loop"},
	"test/mutants": {}, // mistakes in other packages' rules
	"cmd":          {anything},
	measuring:      {anything},
	"examples":     {"schemas", "producer", "consumer"}, // what people copy

	// Tests use these: doubles of servers, certificates, databases, counters.
	"test/zkfake":      {},
	"test/tracingtest": {"internal/tracing"},
	"test/testcert":    {},
	"test/freeport":    {},
	"test/oidctest":    {},
	"test/counter":     {},
	"test/recordtest":  {},
	"test/mysqltest":   {},
	"test/lettertest":  {"task", "store/letters"},
	"test/memindex":    {"internal/index"},

	// Tests of the built program, in a process of its own.
	"test/program":  {},
	"test/browser":  {"test/program"},
	"test/clients":  {"test/program"},
	"test/watching": {"schemas", "test/program"},
}

// measuring is the one program that imports something of test: what it measures with.
const measuring = "test/bench/notyet-bench"

// stages may not meet in a test either: what needs two of them is a test of the assembled program, in cmd. Substrate
// may: a stage's test runs on the embedded one.
var stages = []string{"producer", "consumer", "store", "events", "scanner", "dispatcher", "deadletter"}

// homes names, for each client library, the only parts whose code and tests import it, so that its traps are handled
// once. The first part is the library's home; the others are its doubles in tests. A library is every package whose path
// begins with the key.
var homes = map[string][]string{
	"gorm.io/":                       {"store", "store/internal", "store/admin"},
	"github.com/glebarez/sqlite":     {"store"},
	"github.com/redis/go-redis/":     {"internal/index"},
	"github.com/go-zookeeper/zk":     {"internal/election", "test/zkfake"},
	"github.com/cockroachdb/pebble/": {"internal/sendlog"},
	"github.com/alecthomas/kong":     {"internal/command", "cmd", measuring},
	"code.dny.dev/ssrf":              {"callback"},
	"github.com/go-jose/":            {"internal/access", "test/oidctest"},
	"go.opentelemetry.io/":           {"internal/tracing", "test/tracingtest"},
}

// fakes stand in for servers: code imports them only in the embedded part and in the simulator, tests anywhere.
var fakes = []string{"github.com/twmb/franz-go/pkg/kfake", "github.com/alicebob/miniredis/"}
