// Package chaos runs the built program as several processes on servers of its own. It causes one
// fault after the other while requests keep coming, repairs everything, and gives the checker a
// history of the run.
//
//	servers.go, node.go, cluster.go   servers, processes, and a proxy between each two of them
//	tasks.go, load.go, reports.go     requests and consumers, determined by a seed
//	upgrade.go                        the version before, and the way to this one and back
//	faults.go, fault_*.go             the faults; each notes how its effect was observed
//	observe.go, collect.go            what is noted during the run and at its end
//	run.go, report.go                 the whole run, and docs/faults.md
//
// history/ is the data between harness and checker; check/ is the checker; proxy/ disturbs
// connections.
package chaos
