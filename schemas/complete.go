package schemas

import (
	"strconv"
	"time"
)

// complete checks the headers against each other and the limits, and fills in defaults.
func (d *decoder) complete(l *Limits) *Rejection {
	if extra := d.seen &^ allowed[d.req.Op]; extra != 0 {
		return d.misplaced(extra)
	}
	d.req.Accepted = d.rec.Timestamp.UnixMilli()
	if d.req.Accepted < 0 || d.req.Accepted > maxMillis {
		return &Rejection{
			Header: "record timestamp", Value: strconv.FormatInt(d.req.Accepted, 10),
			Problem: "is not a time in Unix milliseconds", Fix: "let the client or the broker set it",
		}
	}
	d.req.Key, d.req.Value = d.rec.Key, d.rec.Value
	if rej := d.target(l); rej != nil {
		return rej
	}
	if rej := d.identity(); rej != nil {
		return rej
	}
	switch d.req.Op {
	case OpSchedule:
		if d.req.Settings.IfExists == Merge {
			d.req.MaxValue = l.maxValue()
		}
		return d.schedule(l)
	case OpTimer:
		return d.timer(l)
	}
	return nil
}

// misplaced explains a header that the op does not take.
func (d *decoder) misplaced(extra header) *Rejection {
	h := extra & -extra
	v, _ := only(d.rec.Headers, h.name())
	return bad(h, v, "means nothing with "+HeaderOp+" "+d.req.Op.String(), "leave it out, or change "+HeaderOp)
}

// target checks the task's target: a topic, or the origin of a URL.
func (d *decoder) target(l *Limits) *Rejection {
	delivers := d.req.Op == OpSchedule || d.req.Op == OpTimer
	if d.seen&hMethod != 0 && d.seen&hURL == 0 {
		return bad(hMethod, []byte(d.verb), "means nothing without "+HeaderURL, "leave it out, or send "+HeaderURL)
	}
	if rej := d.ownTarget(l); rej != nil {
		return rej
	}
	topic := d.req.Topic
	switch {
	case d.seen&(hTopic|hURL) == hTopic|hURL:
		return bad(hURL, d.url, "stands beside "+HeaderTopic, "send one of them")
	case d.seen&hURL != 0:
		return d.origin(l, delivers)
	case topic == "":
		return missing(hTopic, "name the target topic, or send "+HeaderURL)
	case IsOrigin(topic) && delivers:
		return bad(hTopic, []byte(topic), "is an origin", "send the whole URL in "+HeaderURL+" instead")
	case l.internal(topic, d.rec.Topic):
		return bad(hTopic, []byte(topic), "is an internal topic", "name a topic of your own")
	case !l.allows(topic):
		return bad(hTopic, []byte(topic), "is not allowed on this intake topic", "ask its operator, or use another one")
	}
	return nil
}

// ownTarget fills in the intake's own target, and refuses every other one.
func (d *decoder) ownTarget(l *Limits) *Rejection {
	const problem = "is not the target of this intake topic"
	switch {
	case l.Target == "":
	case d.seen&hURL != 0:
		return bad(hURL, []byte(d.call.Origin), problem, "leave it out, or use another intake topic")
	case d.seen&hTopic == 0:
		d.req.Topic = l.Target
	case d.req.Topic != l.Target:
		return bad(hTopic, []byte(d.req.Topic), problem, "leave it out, write "+l.Target+", or use another intake topic")
	}
	return nil
}

// origin checks the URL of a callback. Only a delivery needs a URL that is called: a task can be
// cancelled though its URL is refused by now.
func (d *decoder) origin(l *Limits, delivers bool) *Rejection {
	d.req.Topic = d.call.Origin
	if !l.allows(d.req.Topic) {
		return bad(hURL, []byte(d.req.Topic), "is not allowed on this intake topic", "ask its operator, or use another one")
	}
	if !delivers {
		return nil
	}
	if l.Callbacks != nil {
		if rej := l.Callbacks(d.call); rej != nil {
			return rej
		}
	}
	d.req.Settings.Callback.Method = d.verb
	d.req.Settings.Callback.set(string(d.url))
	if d.seen&hAckTimeout == 0 {
		d.req.Settings.AckTimeout = DefaultCallbackTimeout
	}
	return nil
}

// identity checks the id, or makes one.
func (d *decoder) identity() *Rejection {
	op := d.req.Op
	if d.req.GivenID {
		if op >= OpTimer && len(d.req.ID) > MaxTimerIDLen {
			return bad(hID, []byte(d.req.ID), "leaves no room for the time of a run",
				"write a timer id of at most "+strconv.Itoa(MaxTimerIDLen)+" bytes")
		}
		return nil
	}
	if op != OpSchedule {
		return missing(hID, HeaderOp+" "+op.String()+" needs the id")
	}
	d.req.ID = DefaultID(d.rec.Topic, d.rec.Partition, d.rec.Offset)
	if len(d.req.ID) > MaxIDLen {
		return missing(hID, "give one; the intake topic's name is too long for a default")
	}
	return nil
}

func (d *decoder) schedule(l *Limits) *Rejection {
	s := &d.req.Settings
	if d.seen&hEvents == 0 {
		s.Events = DefaultEvents(d.req.GivenID)
	}
	if extra := d.seen & (hMerge | hMaxWait); extra != 0 && s.IfExists != Merge {
		h := extra & -extra
		v, _ := only(d.rec.Headers, h.name())
		return bad(h, v, "means nothing without "+HeaderIfExists+" merge", "leave it out, or add "+HeaderIfExists+" merge")
	}
	return d.due(l)
}

// beyond explains a time beyond the horizon.
func beyond(h header, v []byte, l *Limits, accepted int64) *Rejection {
	horizon := time.Duration(l.maxDelay()) * time.Millisecond
	from := time.UnixMilli(accepted).UTC().Format(time.RFC3339)
	return bad(h, v, "is beyond the horizon of "+horizon.String()+" from "+from,
		"schedule it nearer, or ask the operator for a longer horizon")
}
