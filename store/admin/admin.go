// Package admin holds operators' decisions and the agreements of an installation's processes: the
// policies of targets, the number of slots, the audit log, the services alive, and common settings.
// A decision goes in, and a row comes out that every process reads.
package admin

import "github.com/notyet/notyet/store/internal/handle"

// Admin is a value without state of its own.
type Admin struct{ h *handle.Handle }

// New makes the Admin of a store.
func New(st handle.Source) Admin { return Admin{handle.Of(st)} }
