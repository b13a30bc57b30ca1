// Package task has the rules about tasks. A task and what happened to it go in; what becomes of it
// comes out.
//
// Nothing here reads or writes anything. The store turns the rules into SQL, and its transactions
// say in which order they take effect. The dispatcher and the programs of recovery use the same
// rules, so that a task means the same everywhere.
package task
