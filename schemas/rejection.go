package schemas

import (
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxShown limits how much of a header's name or value a rejection repeats, in bytes.
const maxShown = 80

// Rejection tells the sender why a request was rejected.
type Rejection struct {
	ID      string // the request's id if it is usable and the intake's to answer, otherwise its default id
	Topic   string // the target topic if it is usable and the intake's to answer, otherwise ""
	Header  string // what is wrong: a header's name, or "record key", "record headers", "record value", "record timestamp"
	Value   string // its value, valid UTF-8, cut; "" if there is none
	Problem string // what is wrong with it
	Fix     string // what to write instead
	Claim   string // the target and the id that the request names and its intake may not speak for; "" if none
}

// Error returns one line: header, value, problem, fix and claim.
func (r *Rejection) Error() string {
	text := r.Header
	if r.Value != "" {
		text += " " + strconv.Quote(r.Value)
	}
	text += " " + r.Problem + ": " + r.Fix
	if r.Claim != "" {
		text += " (the request names " + r.Claim + ")"
	}
	return text
}

// Problems that are not about a header's value.
const (
	isMissing  = "is missing"
	isRepeated = "is repeated"
)

func bad(h header, v []byte, problem, fix string) *Rejection {
	return &Rejection{Header: h.name(), Value: shown(v), Problem: problem, Fix: fix}
}

func missing(h header, fix string) *Rejection {
	return &Rejection{Header: h.name(), Problem: isMissing, Fix: fix}
}

func enumProblem(h header, names []string, v []byte) *Rejection {
	return bad(h, v, "is none of its values", "write one of "+strings.Join(names, ", "))
}

// shown prepares a value for one line of valid UTF-8.
func shown(v []byte) string {
	if len(v) <= maxShown {
		return strings.ToValidUTF8(string(v), "\uFFFD")
	}
	return strings.ToValidUTF8(string(CutUTF8(v, maxShown)), "\uFFFD") + "…"
}

// unknown explains a header that looks like notyet's and is not.
func unknown(key string, v []byte) *Rejection {
	rej := &Rejection{Header: shownName(key), Value: shown(v), Problem: "is not a header of notyet"}
	lower := strings.ToLower(key)
	if lookup(lower) != 0 {
		rej.Problem, rej.Fix = "is not in lower case", "write "+lower
		return rej
	}
	if near := nearest(lower); near != "" {
		rej.Fix = "did you mean " + near + "?"
		return rej
	}
	rej.Fix = "remove it; names that start with " + Prefix + " are reserved"
	return rej
}

// shownName keeps a header's name on one line.
func shownName(key string) string {
	q := strconv.Quote(shown([]byte(key)))
	return q[1 : len(q)-1]
}

// nearest returns the request header within two edits of the name (fewer for a short name), or "".
func nearest(name string) string {
	best, distance := "", min(3, 1+(len(name)-len(Prefix))/2)
	if len(name) > 2*len(HeaderMaxAttempts) {
		return ""
	}
	for i, n := range headerNames {
		if header(1)<<i&hNotRequest != 0 {
			continue
		}
		if d := levenshtein.ComputeDistance(name, n); d < distance {
			best, distance = n, d
		}
	}
	return best
}

// addressed fills in the rejection's id and topic, as far as the record's are usable. A record
// without a target is for the intake's own. An intake speaks for its allowed targets only: for any
// other target, a rejection is about the record alone, and its reason repeats the record's claim.
func (r *Rejection) addressed(rec *kgo.Record, l *Limits) *Rejection {
	named, topic := "", l.Target
	if v, ok := only(rec.Headers, HeaderTopic); ok {
		named = shown(v)
		topic, _ = ParseTarget(v)
	} else if v, ok := only(rec.Headers, HeaderURL); ok {
		c, _ := ParseCallbackURL(v)
		named, topic = c.Origin, c.Origin
	}
	id, given := only(rec.Headers, HeaderID)
	given = given && idProblem(id) == ""
	r.ID = DefaultID(rec.Topic, rec.Partition, rec.Offset)
	if l.speaksFor(topic, rec.Topic) {
		if r.Topic = topic; given {
			r.ID = string(id)
		}
		return r
	}
	var claims []string
	if named != "" && named != r.Value {
		claims = append(claims, "the target "+strconv.Quote(named))
	}
	if given {
		claims = append(claims, "the id "+strconv.Quote(shown(id)))
	}
	r.Claim = strings.Join(claims, " and ")
	return r
}

// only returns the header of that name if there is exactly one.
func only(headers []kgo.RecordHeader, name string) (v []byte, ok bool) {
	for _, h := range headers {
		if h.Key != name {
			continue
		}
		if ok {
			return nil, false
		}
		v, ok = h.Value, true
	}
	return v, ok
}
