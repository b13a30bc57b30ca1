// Package sendlog is a local, append-only record of attempts to send and their outcomes. Batches of
// intents and outcomes go in; after a crash, a database restore or an outage, they come out again
// in order.
//
// The log is written when MySQL is down and read when MySQL has gone back in time. It lives on one
// machine's disk and is lost with it, so it is never the only reason not to send a task.
//
// # Layout of the directory
//
//	lock        held (flock) by the process that has the log open
//	occupant    the dispatcher that has it, or had it last
//	watermark   the last batch number known to be on disk
//	db/         pebble: key = big-endian batch number, value = one batch
//
// Batches are numbered densely from 1 in the order in which they reached the disk, and each value
// carries its number and a CRC32C. So nothing can be missing unnoticed. In the middle a number is
// missing. At the end pebble takes a damaged write-ahead log for one cut off by a crash and
// silently drops the rest, but then the watermark is higher than the last number. Numbers of lost
// batches are not given out again; the gap stays visible until it is pruned.
//
// # When writing fails
//
// pebble takes a failed write of its write-ahead log or manifest as fatal: it calls its logger's
// Fatalf. If Fatalf returned, pebble would report success for an unwritten batch. Ours does not
// return. It marks the log as broken and parks the goroutine; every append, waiting or later, fails
// with ErrBroken and the cause, also on a full disk. A broken log stays broken for the life of the
// process: free some space, then restart. Failed appends may have reached the disk, as after any
// crash.
//
// A disk too full to flush memory to a table, while the write-ahead log still finds room, is
// milder: appends go on, pebble tries again, and at last stalls them until there is space. An
// append then waits until its context ends, or until Config.Patience is over: a disk without an
// answer breaks the log like a refusing one.
package sendlog
