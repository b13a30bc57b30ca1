package election

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
)

// able tells whether a member can do what is required.
func (d memberData) able(required []string) bool {
	return !slices.ContainsFunc(required, func(word string) bool { return !slices.Contains(d.Can, word) })
}

// ableOf returns the candidates that can do what is required; all, if none can.
func ableOf(all []candidate, required []string) []candidate {
	able := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !c.able(required) })
	if len(able) == 0 {
		return all
	}
	return able
}

// heir is for a member that does not lead. The oldest one that can do what is required removes the
// older candidates. Their members join again behind it, and so it leads, as the oldest always does.
type heir struct {
	t       *term
	known   requirement
	asked   time.Time // for the last time; zero: never
	asking  bool
	answers chan requirement

	removed []string  // members that have not joined again,
	until   time.Time // and may act until then on what they have read before
}

type requirement struct {
	words []string
	asked time.Time
	err   error
}

// overtake tells whether it has removed the older candidates. Where one of them can do all that
// this member can, as with one release, it asks nothing: that one leads, or another.
func (h *heir) overtake(older []candidate) (bool, error) {
	me := h.t.m.memberData()
	if slices.ContainsFunc(older, func(c candidate) bool { return c.able(me.Can) }) {
		return false, nil
	}
	h.ask()
	able := func(c candidate) bool { return c.able(h.known.words) }
	if time.Since(h.known.asked) >= 2*h.t.window || !me.able(h.known.words) || slices.ContainsFunc(older, able) {
		return false, nil
	}
	for _, c := range older {
		if err := h.t.seat.remove(c); err != nil {
			return false, err
		}
		h.removed = append(h.removed, c.ID)
		h.until = time.Now().Add(max(h.t.window, time.Duration(c.Session)*time.Millisecond))
		h.t.log.Info("removed an older candidate: its release must not lead now", zap.String("older", c.ID), zap.Strings("required", h.known.words))
	}
	return true, nil
}

// ask asks what is required, once in a trust window, beside the term. An answer wakes the term.
func (h *heir) ask() {
	select {
	case a := <-h.answers:
		h.asking = false
		if a.err != nil {
			h.t.log.Warn("what is required of a leader is not known", zap.Error(a.err))
		} else {
			h.known = a
		}
	default:
	}
	if h.asking || time.Since(h.asked) < h.t.window {
		return
	}
	h.asking, h.asked = true, time.Now()
	a := requirement{asked: h.asked}
	h.t.calls.Go(func() {
		ctx, cancel := context.WithTimeout(h.t.ctx, databaseTimeout)
		defer cancel()
		a.words, a.err = h.t.m.cfg.Required(ctx)
		h.answers <- a
		signal(h.t.wake)
	})
}

// returning is for how long a leader publishes nothing, because members that it has removed may not
// have noticed. One that is back drains what it loses. Others take it at once from one that is not.
func (h *heir) returning(candidates []candidate) time.Duration {
	for _, c := range candidates {
		h.removed = slices.DeleteFunc(h.removed, func(id string) bool { return id == c.ID })
	}
	if len(h.removed) == 0 {
		return 0
	}
	return time.Until(h.until)
}
