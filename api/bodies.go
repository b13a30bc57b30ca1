package api

import (
	"cmp"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/schemas"
)

// bodyBudget limits the total size of the request bodies being handled. JSON takes about three
// times its size while it is parsed.
const bodyBudget = 128 << 20

// limitBody admits the largest value.
func (s *server) limitBody(op *huma.Operation) { op.MaxBodyBytes = s.largestBody() }

// largestBody returns the size of a body with the largest value in either form (base64 takes 4/3;
// escaped text up to 6 bytes for one), with its headers.
func (s *server) largestBody() int64 { return 6*int64(s.largestValue()) + 1<<20 }

func (s *server) largestValue() int {
	largest := schemas.DefaultMaxValueBytes
	for _, in := range s.intakes() {
		largest = max(largest, in.Limits.MaxValueBytes)
	}
	return largest
}

// budget lets a body wait until it fits into bodyBudget beside those being read. A body of
// unknown length counts as the largest. Where an operation has no body, none is read.
func (s *server) budget(limit int64) func(huma.Context, func(huma.Context)) {
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
		s.within(s.bodies, size, ctx, next)
	}
}
