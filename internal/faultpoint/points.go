package faultpoint

// The places, in the order of a task's way. Each comment says where the place is and what an error
// stands for. Without an error there, only death and a pause make sense.
const (
	// ScannerReport: a record of the reports topic has been read (scanner/decode.go). No error.
	ScannerReport = "scanner.report"
	// ScannerPolled: a batch is about to be stored (scanner/worker.go). Error: the database rejects
	// the batch.
	ScannerPolled = "scanner.polled"
	// StoreReplacing: under the locks of rows and slots, of cancels of many under those of rows,
	// before known tasks are cancelled, replaced, fired or ended (store/intake/place.go,
	// store/intake/timers.go). Error: the transaction fails.
	StoreReplacing = "store.replacing"
	// StoreBuried: dead letters are written and not yet committed
	// (store/internal/handle/deadletters.go). Error: the transaction fails.
	StoreBuried = "store.buried"
	// ScannerStored: a batch is committed (scanner/worker.go). Error: the commit's reply is lost.
	ScannerStored = "scanner.stored"
	// ScannerRemoving: entries of cancelled or replaced tasks are about to be removed from the
	// index (scanner/index.go). Error: Redis refuses.
	ScannerRemoving = "scanner.removing"
	// ScannerIndexed: the group's offset is to be committed (scanner/commits.go). Error: Kafka
	// refuses.
	ScannerIndexed = "scanner.indexed"
	// DispatcherAcquired: slots are acquired in the database and not yet in memory
	// (dispatcher/ownership.go). Error: the reply is lost.
	DispatcherAcquired = "dispatcher.acquired"
	// DispatcherDrained: slots are about to be given away (dispatcher/giveaway.go). Error: the
	// database refuses.
	DispatcherDrained = "dispatcher.drained"
	// StoreMaking: under the locks of timers and slots, runs are inserted before their timers move
	// on (store/intake/runs.go). Error: the transaction fails.
	StoreMaking = "store.making"
	// DispatcherMade: runs of timers are committed, and nobody is told (dispatcher/runs.go). Error:
	// the reply is lost.
	DispatcherMade = "dispatcher.made"
	// DispatcherWindow: a page of the near future is read and not yet in the index
	// (dispatcher/indexer.go). Error: Redis refuses.
	DispatcherWindow = "dispatcher.window"
	// DispatcherClaimed: the claim has advanced and nothing is read yet (dispatcher/claim.go).
	// Error: the reply is lost.
	DispatcherClaimed = "dispatcher.claimed"
	// DispatcherLogged: intents are in the log (dispatcher/fetchbodies.go). Error: writing failed.
	DispatcherLogged = "dispatcher.logged"
	// DispatcherTrusted: the election is trusted, and a due task is about to be passed to the
	// producer (dispatcher/send.go). Error: the producer refuses it.
	DispatcherTrusted = "dispatcher.trusted"
	// DispatcherSent: Kafka has answered, and the answer is not yet processed
	// (dispatcher/send.go). Error: the answer is lost.
	DispatcherSent = "dispatcher.sent"
	// DispatcherAcknowledged: outcomes are about to be written to the send log
	// (dispatcher/settle.go). Error: that fails.
	DispatcherAcknowledged = "dispatcher.acknowledged"
	// DispatcherNoted: outcomes are in the send log and about to be settled (dispatcher/settle.go).
	// Error: the database refuses.
	DispatcherNoted = "dispatcher.noted"
	// DispatcherSettled: a settlement is committed (dispatcher/settle.go). Error: the reply is
	// lost.
	DispatcherSettled = "dispatcher.settled"
	// DispatcherMarked: settled tasks are about to be removed from the index
	// (dispatcher/indexer.go). Error: Redis refuses.
	DispatcherMarked = "dispatcher.marked"
	// DispatcherUnreported: the time for a report is over, and its task is about to be retried or
	// to become a dead letter (dispatcher/flight/putback.go). No error.
	DispatcherUnreported = "dispatcher.unreported"
	// StoreReplaying: dead tasks are pending again, and their letters are not yet marked
	// (store/intake/replay.go). Error: the transaction fails.
	StoreReplaying = "store.replaying"
	// DeadletterReplayed: a replay is committed, and the index is not yet told
	// (deadletter/replay.go). Error: the reply is lost.
	DeadletterReplayed = "deadletter.replayed"
)

// Row is the consequence of a death at a place: a row of the table in docs/design/failures.md.
type Row struct{ Name, After, Then string }

// Rows has one row for each place.
var Rows = []Row{
	{ScannerReport, "report received, not stored", "as polled, not stored"},
	{ScannerPolled, "polled, not stored", "the partition's next reader begins at the offset in MySQL (a dead scanner is noticed within 6 s)"},
	{StoreReplacing, "cancel decided, not committed (cancel racing a claim)", "rolled back: a claim that waited for its locks takes the task, and the cancel, read again, is `too_late`"},
	{StoreBuried, "dead letter written, task not closed", "one transaction, rolled back: the task dies once when it is repeated"},
	{ScannerStored, "stored, not indexed, not told, reply lost", "the next reader begins behind it; where only the reply was lost, the offset refuses the repetition. The sweep finds its tasks within a second, a reader of its source tells its answers from the outbox"},
	{ScannerRemoving, "cancel or replacement stored, index entry not removed", "the dispatcher claims a little early, and finds nothing; the comparison every 30 s mends the index"},
	{ScannerIndexed, "indexed, offset not committed to Kafka", "only lag monitors notice"},
	{DispatcherAcquired, "mid slot change: slots taken, not begun", "they stay the dead owner's until its session ends"},
	{DispatcherDrained, "mid slot change: slots drained, not released", "likewise; nothing is in doubt"},
	{StoreMaking, "runs of timers inserted, not committed", "rolled back: the slot's next owner makes them"},
	{DispatcherMade, "runs of timers stored, index not told, reply lost", "they are not made again; the sweep finds them within a second"},
	{DispatcherWindow, "window read, not indexed", "loaded again from the mark, which has not moved"},
	{DispatcherClaimed, "claimed, not logged", "the next owner sends `(done, claimed]`, which is in doubt: after the session (4 s) when the owner was killed, at once when it left or began again in its directory"},
	{DispatcherLogged, "logged, not sent", "the same: an intent alone proves nothing"},
	{DispatcherTrusted, "paused between the look at trust and the send", "as logged, not sent; on waking, it sends at most 256 tasks, and what its producer holds, as second copies with the same key; its claims and settlements are refused. MySQL drops a transaction that was frozen with it after 5 s"},
	{DispatcherSent, "sent, response lost", "the producer retries idempotently, no second copy; after a death the next owner sends a second copy with the same delivery key"},
	{DispatcherAcknowledged, "acknowledged, outcome not logged", "a second copy, likewise"},
	{DispatcherNoted, "outcome logged, not marked in MySQL", "restarted in its directory: proven, not sent again, the event is told. Another dispatcher: a second copy"},
	{DispatcherSettled, "marked in MySQL, reply lost, events of transitions not told", "the settlement is repeated, and leaves alone what went on since; its events wait in outbox source 2 for the owner of slot 0"},
	{DispatcherMarked, "marked, not removed from Redis", "nobody asks for entries up to `done`; the next settlement or the look every 2 s trims them"},
	{DispatcherUnreported, "timeout of a report decided, not resent", "the row is in doubt: the next owner decides again"},
	{StoreReplaying, "replayed, not marked", "one transaction, rolled back: run again, each letter is replayed once"},
	{DeadletterReplayed, "replayed and marked, index not told", "the sweep finds it; run again, the letter is skipped"},
}
