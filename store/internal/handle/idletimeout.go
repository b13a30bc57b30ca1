package handle

import "time"

// IdleTimeout is the silence after which the server drops a connection. Otherwise a process frozen
// in a transaction, or gone with its machine, holds locks for the server's default of eight hours
// and blocks its successor. The pool closes idle connections before.
const IdleTimeout = 5 * time.Second
