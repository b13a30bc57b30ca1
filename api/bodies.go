package api

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
)

// bodyBudget limits the total size of the request bodies being handled. JSON takes about three
// times its size while being parsed.
const bodyBudget = 128 << 20

// memory bounds the bytes of bodies and answers held at a time.
type memory struct {
	api     huma.API
	largest int64 // bytes of a body
	bodies  *share.Turns
	unsent  *share.Turns // answers
}

func newMemory(api huma.API, intakes []Intake) *memory {
	value := schemas.DefaultMaxValueBytes
	for _, in := range intakes {
		value = max(value, in.Limits.MaxValueBytes)
	}
	// The largest value in any form, with headers: base64 takes 4/3, escaped text up to 6 bytes for
	// one.
	largest := 6*int64(value) + 1<<20
	bodies := max(bodyBudget, largest)
	return &memory{api, largest, share.NewTurns(bodies, largest, bodies), share.NewTurns(answerBudget, contentPageBytes, answerBudget)}
}

func (m *memory) limitBody(op *huma.Operation) { op.MaxBodyBytes = m.largest }

// budget lets a body wait until there is room in bodyBudget. A body of unknown length counts as the
// largest. Where an operation has no body, none is read.
func (m *memory) budget(limit int64) func(huma.Context, func(huma.Context)) {
	limit = cmp.Or(limit, 1<<20) // huma's default
	return func(ctx huma.Context, next func(huma.Context)) {
		if ctx.Operation().RequestBody == nil {
			next(ctx)
			return
		}
		size := limit
		if n, err := strconv.ParseInt(ctx.Header("Content-Length"), 10, 64); err == nil {
			size = min(n, limit)
		}
		m.within(m.bodies, size, ctx, next)
	}
}

// A slow reader keeps his answer in memory until the server's time for writing ends, on as many
// connections as there may be. So answers with content count from the asking to the end of the
// sending. In JSON they take up to eight times their size.
const (
	// answerBudget limits the bytes of all answers together.
	answerBudget = 128 << 20
	// pageBytes is the count of a page without content: 1000 dead letters with their reasons.
	pageBytes = 4 << 20
	// contentPageBytes is the count of a page with content: 16 MiB, and one value more.
	contentPageBytes = 24 << 20
	// thingBytes is the count of one thing: the largest value of any intake, since its intake may
	// have had another limit at the time, and the rest.
	thingBytes = schemas.MaxValueBytes + 1<<20
)

func (m *memory) onePage(op *huma.Operation) {
	m.sending(op, func(ctx huma.Context) int64 {
		if ctx.Query("content") != "" {
			return contentPageBytes
		}
		return pageBytes
	})
}

func (m *memory) oneThing(op *huma.Operation) {
	m.sending(op, func(huma.Context) int64 { return thingBytes })
}

func (m *memory) sending(op *huma.Operation, size func(huma.Context) int64) {
	op.Middlewares = append(op.Middlewares, func(ctx huma.Context, next func(huma.Context)) {
		m.within(m.unsent, size(ctx), ctx, next)
	})
}

func waits(ctx huma.Context, next func(huma.Context)) {
	next(huma.WithContext(ctx, share.Wait(ctx.Context())))
}

// within handles a request when there is room for n bytes more, or refuses it.
func (m *memory) within(budget *share.Turns, n int64, ctx huma.Context, next func(huma.Context)) {
	leave, err := budget.Take(ctx.Context(), access.From(ctx.Context()).Account(), n)
	if err != nil {
		ctx.SetHeader("Retry-After", "1")
		_ = huma.WriteErr(m.api, ctx, http.StatusServiceUnavailable, "all memory that is set aside for bodies and answers is taken: "+err.Error())
		return
	}
	defer leave()
	next(ctx)
}
