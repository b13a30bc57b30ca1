// Package chaos runs the built program as several processes on servers of its own, breaks one thing after another while
// requests keep coming, heals it all, and hands what is left over to the checker as a history.
//
//	servers.go, node.go, cluster.go   what is broken: servers, processes, and a proxy between each two
//	tasks.go, load.go, reports.go     seeded requests and consumers
//	faults.go, fault_*.go             what is done to them; each fault says how it was seen to have an effect
//	observe.go, collect.go            what is noted meanwhile and at the end
//	run.go, report.go                 the whole run, and docs/faults.md
//
// history/ is what lies between harness and checker; check/ judges it; proxy/ breaks connections.
package chaos
