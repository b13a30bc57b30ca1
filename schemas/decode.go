package schemas

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Decode decodes an intake record. Its error is always a *Rejection. It depends only on its
// arguments (and, with notyet-timezone, on time zone data), so the same record always decodes to
// the same request.
//
// A delay and the horizon are counted from the record's timestamp, which should be the broker's
// (message.timestamp.type=LogAppendTime). With CreateTime it is the caller's clock.
func Decode(r *kgo.Record, l Limits) (Request, error) {
	if rej := l.size(r); rej != nil {
		return Request{}, rej.addressed(r, &l)
	}
	var names map[string]string
	if len(l.Aliases) > 0 {
		var rej *Rejection
		if r, names, rej = l.translated(r); rej != nil {
			return Request{}, rej.addressed(r, &l)
		}
	}
	d := decoder{rec: r}
	d.req.Settings = defaults
	d.req.Version = NoVersion
	if rej := d.headers(); rej != nil {
		return Request{}, rej.addressed(r, &l).named(names)
	}
	if rej := d.complete(&l); rej != nil {
		return Request{}, rej.addressed(r, &l).named(names)
	}
	return d.req, nil
}

type decoder struct {
	rec   *kgo.Record
	req   Request
	seen  header
	at    []byte
	delay []byte
	zone  *time.Location // nil: none is given
	local bool           // a time was a local one, in that zone
	url   []byte
	call  CallbackURL // what url says
	verb  string      // the method, "" if none is given
}

// headers reads each header once and collects the business's own. These usually form one stretch,
// before or after notyet's, and are then not copied.
func (d *decoder) headers() *Rejection {
	all := d.rec.Headers
	first, end, split := 0, 0, false // the stretch all[first:end], until it is split
	for i := range all {
		h := &all[i]
		if ours(h.Key) {
			if rej := d.header(h.Key, h.Value); rej != nil {
				return rej
			}
			continue
		}
		switch {
		case split:
			d.req.Headers = append(d.req.Headers, *h)
		case first == end:
			first, end = i, i+1
		case i == end:
			end++
		default:
			split = true
			d.req.Headers = make([]kgo.RecordHeader, 0, len(all)-i+end-first)
			d.req.Headers = append(append(d.req.Headers, all[first:end]...), *h)
		}
	}
	if !split && first < end {
		d.req.Headers = all[first:end:end]
	}
	return nil
}

func (d *decoder) header(key string, v []byte) *Rejection {
	h := lookup(key)
	if h == 0 {
		return unknown(key, v)
	}
	if d.seen&h != 0 {
		return bad(h, v, isRepeated, "send it once")
	}
	d.seen |= h
	switch h {
	case hOp:
		return parseEnum(h, opNames, v, &d.req.Op)
	case hTopic:
		return d.topic(v)
	case hURL:
		return d.callback(v)
	case hMethod:
		return d.method(v)
	case hID:
		return d.id(v)
	case hVersion:
		return d.version(v)
	case hAt:
		d.at = v
	case hDelay:
		d.delay = v
	case hTimezone:
		return d.timezone(v)
	default:
		if h&hRuns != 0 {
			return d.req.Timer.set(h, v)
		}
		if h&hNotRequest != 0 {
			return bad(h, v, "is not part of a request", "leave it out; notyet and consumers write it")
		}
		if rej := d.req.Settings.set(h, v); rej != nil {
			return rej
		}
		return d.req.Settings.beyond(h, v)
	}
	return nil
}

func (d *decoder) timezone(v []byte) (rej *Rejection) {
	d.zone, rej = parseZone(v)
	return rej
}

func (d *decoder) topic(v []byte) (rej *Rejection) {
	d.req.Topic, rej = ParseTarget(v)
	return rej
}

func (d *decoder) id(v []byte) *Rejection {
	if problem := idProblem(v); problem != "" {
		return bad(hID, v, problem, "write 1 to 255 bytes of UTF-8")
	}
	d.req.ID, d.req.GivenID = string(v), true
	return nil
}

func idProblem(v []byte) string {
	switch {
	case len(v) == 0:
		return "is empty"
	case len(v) > MaxIDLen:
		return "has " + strconv.Itoa(len(v)) + " bytes"
	case !utf8.Valid(v):
		return "is not UTF-8"
	}
	return ""
}

func (d *decoder) version(v []byte) *Rejection {
	n, isInt, fits := parseInt(v)
	if !isInt || !fits || v[0] == '-' {
		return bad(hVersion, v, "is not a version", "write an integer from 0 to 9223372036854775807")
	}
	d.req.Version = n
	return nil
}

func (d *decoder) callback(v []byte) (rej *Rejection) {
	d.url = v
	d.call, rej = ParseCallbackURL(v)
	return rej
}

func (d *decoder) method(v []byte) (rej *Rejection) {
	d.verb, rej = ParseMethod(v)
	return rej
}
