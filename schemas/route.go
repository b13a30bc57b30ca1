package schemas

import "github.com/twmb/franz-go/pkg/kgo"

// Route returns the target by which a record of an intake or of the reports finds its database; "":
// it names none. Route depends on the record and the intake's own target alone, and must never
// change: scanners with other limits, aliases or versions must find the same one. Each request that
// Decode accepts is for that target.
func Route(r *kgo.Record, own string) string {
	if own != "" {
		return own
	}
	for _, name := range []string{HeaderTopic, HeaderURL, etf1Target, natsTarget} {
		for _, h := range r.Headers {
			if h.Key != name {
				continue
			}
			if name == HeaderURL {
				call, _ := ParseCallbackURL(h.Value)
				return call.Origin
			}
			target, _ := ParseTarget(h.Value)
			return target
		}
	}
	return ""
}
