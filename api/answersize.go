package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/schemas"
)

// A caller who reads slowly keeps his answer in memory until the server's time for writing ends, and
// there may be as many as connections. So answers with content count from when they are asked for
// until they are sent. In JSON they take up to eight times their size.
const (
	// answerBudget limits the bytes of these answers together.
	answerBudget = 128 << 20
	// pageBytes is what a page without content counts: 1000 dead letters with their reasons.
	pageBytes = 4 << 20
	// contentPageBytes is what a page with content counts: 16 MiB, and one value more.
	contentPageBytes = 24 << 20
	// thingBytes is what one thing counts: the largest value of any intake, since its intake may have had another limit when the value
	// was stored, and what is around it.
	thingBytes = schemas.MaxValueBytes + 1<<20
)

// onePage bounds the answers with a page of a list.
func (s *server) onePage(op *huma.Operation) {
	s.sending(op, func(ctx huma.Context) int64 {
		if ctx.Query("content") != "" {
			return contentPageBytes
		}
		return pageBytes
	})
}

// oneThing bounds the answers with a task, a timer or a dead letter.
func (s *server) oneThing(op *huma.Operation) {
	s.sending(op, func(huma.Context) int64 { return thingBytes })
}

func (s *server) sending(op *huma.Operation, size func(huma.Context) int64) {
	op.Middlewares = append(op.Middlewares, func(ctx huma.Context, next func(huma.Context)) {
		s.within(s.unsent, size(ctx), ctx, next)
	})
}

// within handles a request when there is room for n bytes more, or refuses it.
func (s *server) within(budget *turns, n int64, ctx huma.Context, next func(huma.Context)) {
	leave, err := budget.take(ctx.Context(), n)
	if err != nil {
		ctx.SetHeader("Retry-After", "1")
		_ = huma.WriteErr(s.huma, ctx, http.StatusServiceUnavailable, "all memory that is set aside for bodies and answers is taken: "+err.Error())
		return
	}
	defer leave()
	next(ctx)
}
