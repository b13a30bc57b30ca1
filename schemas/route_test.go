package schemas

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestRoute(t *testing.T) {
	for name, c := range map[string]struct {
		r    *kgo.Record
		own  string
		want string
	}{
		"a topic":                        {intake(HeaderTopic, "orders"), "", "orders"},
		"the first of two":               {intake(HeaderTopic, "orders", HeaderTopic, "bills"), "", "orders"},
		"a topic before a URL":           {intake(HeaderURL, "https://a/b", HeaderTopic, "orders"), "", "orders"},
		"the origin of a URL":            {intake(HeaderURL, "HTTPS://Shop.example:443/hook"), "", "https://shop.example"},
		"an origin":                      {intake(HeaderTopic, "https://Shop.example"), "", "https://shop.example"},
		"etf1's topic":                   {intake(etf1Target, "orders"), "", "orders"},
		"the NATS scheduler's":           {intake(natsTarget, "orders"), "", "orders"},
		"notyet's own before an alias's": {intake(natsTarget, "bills", HeaderTopic, "orders"), "", "orders"},
		"another case":                   {intake("Notyet-Topic", "orders"), "", ""},
		"no topic's name":                {intake(HeaderTopic, "a b"), "", ""},
		"no URL":                         {intake(HeaderURL, "shop"), "", ""},
		"none":                           {intake(), "", ""},
		"the intake's own":               {intake(HeaderTopic, "bills"), "orders", "orders"},
	} {
		require.Equal(t, c.want, Route(c.r, c.own), name)
	}
}

// FuzzRoute: each accepted record goes to its target's database, whatever the reader's limits are.
func FuzzRoute(f *testing.F) {
	for _, r := range []*kgo.Record{
		scheduled(), operation("cancel"), intake(HeaderURL, "HTTP://a:80/b", HeaderAt, "1790000060000"), intake(HeaderOp, "fire", HeaderID, "x", HeaderTopic, "https://A"),
		intake(etf1Epoch, "1790000060", etf1Target, "t", etf1Key, "k"), intake(natsAt, "@at 2026-09-21T14:13:20Z", natsTarget, "t"),
		intake(natsTarget, "u", HeaderTopic, "t", HeaderDelay, "1h"), intake(HeaderDelay, "1h"), scheduled("Notyet-Topic", "x"),
		EncodeReport(TopicReports, Report{Topic: "t", ID: "i", Attempt: 1, Status: StatusOK}),
	} {
		f.Add(fuzzSeed(r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := fuzzRecord(b, accepted)
		if !ok {
			return
		}
		for _, limits := range []Limits{{}, allAliases, {Target: "t"}, {Target: "t", Aliases: Aliases}, {MaxValueBytes: 1, AllowedTargets: []string{"t", "https://*"}}} {
			if req, err := Decode(r, limits); err == nil {
				require.Equal(t, req.Topic, Route(r, limits.Target))
			}
		}
		if report, err := DecodeReport(r); report.Topic != "" {
			require.Equal(t, report.Topic, Route(r, ""), "%v", err)
		}
	})
}
