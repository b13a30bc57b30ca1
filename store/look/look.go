// Package look holds the questions of people and of figures: lists, histories, forecasts, counts, the
// audit log. A filter goes in, and a page, a count or a task comes out. It only reads, and looks at no
// more rows than a question's limits allow.
package look

import "github.com/notyet/notyet/store/internal/handle"

// Reader answers. It is a value without state of its own.
type Reader struct{ h *handle.Handle }

// New makes a Reader of a store.
func New(st handle.Source) Reader { return Reader{st.Of()} }
