// Package sim runs the whole pipeline, its real code, in one process and in virtual time: a broker, an index and an election
// in memory, a database file in memory, several scanners and dispatchers that start, stop, are dropped dead, are paused. A
// seed decides the configuration, the load and the faults, which overlap; what comes of it is a history like that of a
// fault run on real servers, and the same checker judges it.
//
//	seed.go       what a seed draws
//	world.go      one run: servers, processes, clients, and the way from start to verdict
//	process.go    a scanner or dispatcher that can be stopped, dropped dead, paused
//	server.go     how a server is doing: well, slow, frozen, refusing, failing before or after the effect
//	link.go       connections to Kafka and Redis, which pass through the server's condition and the process's
//	database.go   connections to the database, likewise
//	memo.go       what the database was asked since it last changed
//	index.go      calls of the index, likewise
//	members.go    the election, likewise
//	load.go       requests of every kind, and what consumers report
//	record.go     a request as a record, and what a record says of its requests
//	modes.go      requests that keep, merge or fire what is there
//	storm.go      identities that many requests are about, and looks at them
//	aimed.go      requests and faults at instants that chance seldom hits
//	brink.go      two things at once, of which a mistake needs both
//	stops.go      tasks that are stopped, snoozed, retried in steps, and reports that cannot be read
//	walks.go      lists that are read page by page while slots change
//	replays.go    dead letters that are replayed
//	lost.go       a process that loses a server alone
//	several.go    further databases of the installation, and targets that move between them
//	edges.go      transactions on the intake, offsets committed to Kafka, runs that wait for reports
//	setback.go    a database that forgets its last commits
//	restored.go   a database of which an older state is put in
//	beside.go     a copy of the database beside the original
//	rehearsal.go  a second installation on a copy that nobody has named
//	cutlog.go     a log that forgets its end, and numbers its leaders as before
//	older.go      a member of an earlier release
//	truth.go      who had which slot when, what was in doubt then, who sent what
//	judgesenders.go what was sent, beside who had the slots
//	judgetold.go  what callers were told, beside what was delivered
//	calls.go      callbacks: requests, and their receivers
//	judgecalls.go what came of the callbacks
//	disk.go       the disks of the send logs
//	faults.go     what is broken, and when
//	policies.go   targets that are paused or limited, and when
//	stranger.go   somebody who may write an intake of its own, and names what is others'
//	attack.go     names of topics that somebody makes up
//	tenant.go     a tenant that attacks by intakes of its own
//	collect.go    the history
//	rest.go       nothing spins, and all is back to its size at rest
//	liveness.go   what must hold beside it: all comes to rest, nothing spins, nothing leaks
//	watchdog.go   what ends a run that stands still
//	plants/       mistakes that it is to find, as files
//	story.go      a readable account of a seed that failed
package sim
