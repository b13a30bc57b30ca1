// Package sendlog is a local, append-only record of what was about to be sent
// and what came of it. Batches of intents and outcomes go in; after a crash, a
// database restore or an outage, they come out again in order.
//
// It is written when MySQL is down and read when MySQL has gone back in time.
// It lives on one machine's disk and is lost with it, so it is never the only
// reason why something was not sent.
//
// # Layout of the directory
//
//	lock        held (flock) by the process that has the log open
//	occupant    the dispatcher that has it, or had it last
//	watermark   the last batch number known to be on disk
//	db/         pebble: key = big-endian batch number, value = one batch
//
// Batches are numbered densely from 1 in the order in which they reached the
// disk, and each value carries its number and a CRC32C. So nothing can be
// missing unnoticed: not in the middle (a number is missing), and not at the end
// either, where pebble takes a damaged write-ahead log for one that was cut off
// by a crash and silently drops the rest (the watermark is higher than the last
// number). Numbers of lost batches are not given out again; the gap stays
// visible until it is pruned.
//
// # When writing fails
//
// pebble takes a failed write of its write-ahead log or manifest as fatal: it
// calls its logger's Fatalf, and if that returns, it reports success for a batch
// that was not written. Ours does not return. It marks the log as broken and
// parks the goroutine, so that pebble goes no further; every append, waiting or
// later, fails with ErrBroken and the cause. That holds for a full disk, too.
// A broken log stays broken for the life of the process: free some space, then
// restart. Appends that failed may have reached the disk, as after any crash.
//
// A disk that is too full to flush memory to a table, while the write-ahead log
// still finds room, is milder: appends go on, pebble tries again, and at last
// stalls them until there is space; an append then waits until its context ends,
// or until Config.Patience is over: a disk that does not answer breaks the log as one that refuses.
package sendlog
