package console

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
)

// letterGroup is the dead letters of a target with a kind and one reason, but for its numbers, ids
// and quoted texts.
type letterGroup struct {
	Topic, Kind, Reason string
	Count               int
	First, Last         int64 // when they died, Unix ms
	Path                string
}

// letterGroups are the largest groups among the latest letters.
type letterGroups struct {
	Groups []letterGroup
	Looked int  // how many letters were looked at
	More   bool // there are older ones
	Others int  // smaller groups
}

const (
	groupedLetters = 1000
	shownGroups    = 20
)

// group reads the latest letters of a filter, and groups them.
func (c *Console) group(ctx context.Context, f letterFilter) (out letterGroups, err error) {
	q := f.query()
	q.Set("limit", digitsOf(groupedLetters))
	q.Set("newest", "true")
	var page api.Letters
	if err := c.inside.get(ctx, "/deadletters", q, &page); err != nil {
		return out, err
	}
	out.Groups, out.Looked, out.More = grouped(f, page.Letters.Letters), len(page.Letters.Letters), page.Cursor != ""
	out.Others = max(len(out.Groups)-shownGroups, 0)
	out.Groups = out.Groups[:len(out.Groups)-out.Others]
	return out, nil
}

// various are the parts of a reason that differ between letters with one cause.
var various = regexp.MustCompile(`"[^"]*"|\b[0-9a-fA-F-]*[0-9][0-9a-fA-F-]*\b|[0-9]+`)

// grouped returns the groups, the largest first.
func grouped(f letterFilter, all []deadletter.Letter) (out []letterGroup) {
	type key struct{ topic, kind, reason string }
	at := map[key]int{}
	for _, l := range all {
		k := key{l.Topic, l.Kind, various.ReplaceAllString(l.Reason, "…")}
		i, there := at[k]
		if !there {
			i = len(out)
			at[k] = i
			out = append(out, letterGroup{Topic: k.topic, Kind: k.kind, Reason: k.reason, First: l.DiedAt, Path: f.of(k.topic, k.kind, k.reason)})
		}
		g := &out[i]
		g.Count++
		g.First, g.Last = min(g.First, l.DiedAt), max(g.Last, l.DiedAt)
	}
	slices.SortStableFunc(out, func(a, b letterGroup) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

// of is the page with the letters of a group. A filter has one part of the reason: the longest that
// all of them share.
func (f letterFilter) of(topic, kind, reason string) string {
	f.Topic, f.Kind = topic, kind
	parts := strings.Split(reason, "…")
	longest := slices.MaxFunc(parts, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	f.Reason = cmp.Or(strings.TrimSpace(longest), f.Reason)
	return "/deadletters?" + f.query().Encode()
}
