package schemas

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/test/recordtest"
)

const accepted = 1790000000000 // 2026-09-21T14:13:20Z

// intake is an intake record with headers given as name, value, name, value …
func intake(headers ...string) *kgo.Record {
	return &kgo.Record{Topic: TopicIntake, Partition: 3, Offset: 42, Timestamp: time.UnixMilli(accepted), Headers: recordtest.Headers(headers...)}
}

// scheduled is a valid schedule with more headers behind it.
func scheduled(more ...string) *kgo.Record {
	return intake(append([]string{HeaderTopic, "orders", HeaderID, "order-1", HeaderAt, "1790000060000"}, more...)...)
}

func operation(op string, more ...string) *kgo.Record {
	return intake(append([]string{HeaderOp, op, HeaderTopic, "orders", HeaderID, "order-1"}, more...)...)
}

func TestDecodeRejects(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		record *kgo.Record
		want   string
	}{
		{scheduled("notyet-", ""), "notyet- is not a header of notyet: remove it; names that start with notyet- are reserved"},
		{scheduled("notyet-x\ny", "a\nb"), `notyet-x\ny "a\nb" is not a header of notyet: remove it; names that start with notyet- are reserved`},
		{scheduled("notyet-merg", "sum"), `notyet-merg "sum" is not a header of notyet: did you mean notyet-merge?`},
		{scheduled("NOTYET-ACK", "none"), `NOTYET-ACK "none" is not in lower case: write notyet-ack`},
		{scheduled("NotYet-Whatever", ""), "NotYet-Whatever is not a header of notyet: remove it; names that start with notyet- are reserved"},
		{scheduled(HeaderID, "order-2"), `notyet-id "order-2" is repeated: send it once`},
		{scheduled(HeaderDue, "1"), `notyet-due "1" is not part of a request: leave it out; notyet and consumers write it`},
		{scheduled(HeaderAttempt, "1"), `notyet-attempt "1" is not part of a request: leave it out; notyet and consumers write it`},
		{scheduled(HeaderDelivery, "1"), `notyet-delivery "1" is not part of a request: leave it out; notyet and consumers write it`},
		{scheduled(HeaderReplay, "1"), `notyet-replay "1" is not part of a request: leave it out; notyet and consumers write it`},
		{scheduled(HeaderStatus, "ok"), `notyet-status "ok" is not part of a request: leave it out; notyet and consumers write it`},
		{scheduled(HeaderRetryAfter, "1s"), `notyet-retry-after "1s" is not part of a request: leave it out; notyet and consumers write it`},
		{scheduled(HeaderState, "dead"), `notyet-state "dead" is not part of a request: leave it out; notyet and consumers write it`},

		{intake(HeaderAt, "1790000060000"), "notyet-topic is missing: name the target topic, or send notyet-url"},
		{intake(HeaderTopic, "", HeaderAt, "1790000060000"), "notyet-topic is not a topic name: write 1 to 249 of a-z A-Z 0-9 . _ - (not . or .. alone)"},
		{intake(HeaderTopic, "..", HeaderAt, "1790000060000"), `notyet-topic ".." is not a topic name: write 1 to 249 of a-z A-Z 0-9 . _ - (not . or .. alone)`},
		{intake(HeaderTopic, "a b", HeaderAt, "1790000060000"), `notyet-topic "a b" is not a topic name: write 1 to 249 of a-z A-Z 0-9 . _ - (not . or .. alone)`},
		{intake(HeaderTopic, "\xff", HeaderAt, "1790000060000"), `notyet-topic "` + "\uFFFD" + `" is not a topic name: write 1 to 249 of a-z A-Z 0-9 . _ - (not . or .. alone)`},
		{intake(HeaderTopic, long, HeaderAt, "1790000060000"), `notyet-topic "` + long[:80] + `…" is not a topic name: write 1 to 249 of a-z A-Z 0-9 . _ - (not . or .. alone)`},
		{intake(HeaderTopic, "__x", HeaderAt, "1790000060000"), `notyet-topic "__x" is an internal topic: name a topic of your own`},
		{intake(HeaderTopic, TopicIntake, HeaderAt, "1790000060000"), `notyet-topic "notyet.intake" is an internal topic: name a topic of your own`},
		{intake(HeaderTopic, TopicResults, HeaderAt, "1790000060000"), `notyet-topic "notyet.results" is an internal topic: name a topic of your own`},
		{intake(HeaderTopic, "orders", HeaderID, "", HeaderAt, "1790000060000"), "notyet-id is empty: write 1 to 255 bytes of UTF-8"},
		{intake(HeaderTopic, "orders", HeaderID, long, HeaderAt, "1790000060000"), `notyet-id "` + long[:80] + `…" has 300 bytes: write 1 to 255 bytes of UTF-8`},
		{intake(HeaderTopic, "orders", HeaderID, "a\xff", HeaderAt, "1790000060000"), `notyet-id "a` + "\uFFFD" + `" is not UTF-8: write 1 to 255 bytes of UTF-8`},

		{intake(HeaderTopic, "orders"), "notyet-at is missing: send notyet-at or notyet-delay"},
		{scheduled(HeaderDelay, "1s"), `notyet-delay "1s" stands beside notyet-at: send one of them`},
		{intake(HeaderTopic, "orders", HeaderAt, ""), "notyet-at is empty: " + atFix},
		{intake(HeaderTopic, "orders", HeaderAt, "1790000060"), `notyet-at "1790000060" is below 100000000000, so it is Unix seconds by mistake: write Unix milliseconds: 1790000060000`},
		{intake(HeaderTopic, "orders", HeaderAt, "99999999999"), `notyet-at "99999999999" is below 100000000000, so it is Unix seconds by mistake: write Unix milliseconds: 99999999999000`},
		{intake(HeaderTopic, "orders", HeaderAt, "0"), `notyet-at "0" is below 100000000000, so it is Unix seconds by mistake: write Unix milliseconds, or RFC 3339 such as 1970-01-31T08:00:00Z for a time that long ago`},
		{intake(HeaderTopic, "orders", HeaderAt, "-9223372036854775809"), `notyet-at "-9223372036854775809" is below 100000000000, so it is Unix seconds by mistake: write Unix milliseconds, or RFC 3339 such as 1970-01-31T08:00:00Z for a time that long ago`},
		{intake(HeaderTopic, "orders", HeaderAt, "tomorrow"), `notyet-at "tomorrow" is neither RFC 3339 nor Unix milliseconds: ` + atFix},
		{intake(HeaderTopic, "orders", HeaderAt, "9223372036854775808"), `notyet-at "9223372036854775808" is not within the years 0000 to 9999 in milliseconds: ` + atFix},
		{intake(HeaderTopic, "orders", HeaderAt, "317000000000000"), `notyet-at "317000000000000" is not within the years 0000 to 9999 in milliseconds: ` + atFix}, // year 12015
		{intake(HeaderTopic, "orders", HeaderAt, "12026-01-01T00:00:00Z"), `notyet-at "12026-01-01T00:00:00Z" is neither RFC 3339 nor Unix milliseconds: ` + atFix},
		{intake(HeaderTopic, "orders", HeaderAt, "2027-01-31T08:00"), `notyet-at "2027-01-31T08:00" is a local time without a time zone: add its offset, such as Z or +01:00, or send notyet-timezone`},
		{intake(HeaderTopic, "orders", HeaderAt, "2027-01-31T08:00Z", HeaderTimezone, "UTC"), `notyet-at "2027-01-31T08:00Z" is neither RFC 3339 nor Unix milliseconds: ` + atFix},
		{scheduled(HeaderTimezone, "Europe/Berlin"), `notyet-timezone "Europe/Berlin" means nothing without a local time: leave it out, or write notyet-at without an offset, such as 2027-01-31T08:00`},
		{intake(HeaderTopic, "orders", HeaderDelay, "1h", HeaderTimezone, "Europe/Berlin"), `notyet-timezone "Europe/Berlin" means nothing without a local time: leave it out, or write notyet-at without an offset, such as 2027-01-31T08:00`},
		{intake(HeaderTopic, "orders", HeaderAt, "2027-01-31T08:00:00+01:00", HeaderTimezone, "Europe/Berlin"), `notyet-timezone "Europe/Berlin" means nothing without a local time: leave it out, or write notyet-at without an offset, such as 2027-01-31T08:00`},
		{intake(HeaderTopic, "orders", HeaderAt, "2027-01-31T08:00", HeaderTimezone, "Local"), `notyet-timezone "Local" is not a time zone: write an IANA name such as Europe/Berlin, or UTC`},
		{intake(HeaderTopic, "orders", HeaderAt, "2027-01-31T08:00", HeaderTimezone, ""), `notyet-timezone is not a time zone: write an IANA name such as Europe/Berlin, or UTC`},
		{intake(HeaderTopic, "orders", HeaderAt, "2027-02-29T00:00:00Z"), `notyet-at "2027-02-29T00:00:00Z" has the day 29, and February 2027 has 28 days: write a day that exists`},
		{intake(HeaderTopic, "orders", HeaderAt, "2027-02-28T24:00:00Z"), `notyet-at "2027-02-28T24:00:00Z" has the hour 24: write 00 to 23; the end of a day is 00:00 of the next one`},
		{intake(HeaderTopic, "orders", HeaderAt, "2016-12-31T23:59:60Z"), `notyet-at "2016-12-31T23:59:60Z" has a leap second, which Unix time does not count: write 59, or 00 of the next minute`},
		{intake(HeaderTopic, "orders", HeaderAt, "2027-13-01T00:00:00Z"), `notyet-at "2027-13-01T00:00:00Z" has the month 13: write 01 to 12`},
		{intake(HeaderTopic, "orders", HeaderAt, "2027-12-01T00:75:00Z"), `notyet-at "2027-12-01T00:75:00Z" has the minute 75 and the second 00: write 00 to 59`},
		{intake(HeaderTopic, "orders", HeaderAt, "2027-02-29T00:00", HeaderTimezone, "UTC"), `notyet-at "2027-02-29T00:00" has the day 29, and February 2027 has 28 days: write a day that exists`},
		{intake(HeaderTopic, "orders", HeaderAt, "9999-12-31T23:59:59-23:59"), `notyet-at "9999-12-31T23:59:59-23:59" is not within the years 0000 to 9999: ` + atFix},
		{
			intake(HeaderTopic, "orders", HeaderAt, "9999-12-31T23:59:59Z"),
			`notyet-at "9999-12-31T23:59:59Z" is beyond the horizon of 87672h0m0s from 2026-09-21T14:13:20Z: schedule it nearer, or ask the operator for a longer horizon`,
		},
		{
			intake(HeaderTopic, "orders", HeaderDelay, "P3653DT0.001S"),
			`notyet-delay "P3653DT0.001S" is beyond the horizon of 87672h0m0s from 2026-09-21T14:13:20Z: schedule it nearer, or ask the operator for a longer horizon`,
		},
		{intake(HeaderTopic, "orders", HeaderDelay, ""), "notyet-delay is empty: " + durationFix},
		{intake(HeaderTopic, "orders", HeaderDelay, "-1ns"), `notyet-delay "-1ns" is negative: ` + durationFix},
		{intake(HeaderTopic, "orders", HeaderDelay, "P300000D"), `notyet-delay "P300000D" is longer than 292 years: ` + durationFix},
		{intake(HeaderTopic, "orders", HeaderDelay, "5d"), `notyet-delay "5d" is not a duration: ` + durationFix},

		{scheduled(HeaderVersion, "-1"), `notyet-version "-1" is not a version: write an integer from 0 to 9223372036854775807`},
		{scheduled(HeaderVersion, "9223372036854775808"), `notyet-version "9223372036854775808" is not a version: write an integer from 0 to 9223372036854775807`},
		{scheduled(HeaderVersion, "1.0"), `notyet-version "1.0" is not a version: write an integer from 0 to 9223372036854775807`},
		{scheduled(HeaderVersion, ""), "notyet-version is not a version: write an integer from 0 to 9223372036854775807"},
		{scheduled(HeaderOp, "delete"), `notyet-op "delete" is none of its values: write one of schedule, cancel, fire, stop, timer, timer-enable, timer-disable, timer-delete`},
		{scheduled(HeaderIfExists, "Keep"), `notyet-if-exists "Keep" is none of its values: write one of replace, keep, merge, once`},
		{scheduled(HeaderMerge, "max"), `notyet-merge "max" is none of its values: write one of last, sum, append`},
		{scheduled(HeaderMerge, "last"), `notyet-merge "last" means nothing without notyet-if-exists merge: leave it out, or add notyet-if-exists merge`},
		{scheduled(HeaderIfExists, "keep", HeaderMaxWait, "1m"), `notyet-max-wait "1m" means nothing without notyet-if-exists merge: leave it out, or add notyet-if-exists merge`},
		{scheduled(HeaderIfExists, "merge", HeaderMaxWait, "0"), `notyet-max-wait "0" is zero: ` + durationFix},
		{scheduled(HeaderPriority, ""), "notyet-priority is none of its values: write one of normal, high, low"},
		{scheduled(HeaderAck, "yes"), `notyet-ack "yes" is none of its values: write one of none, report`},
		{scheduled(HeaderEvents, "some"), `notyet-events "some" is none of its values: write one of none, final, all`},
		{scheduled(HeaderAckTimeout, "0s"), `notyet-ack-timeout "0s" is zero: ` + durationFix},
		{scheduled(HeaderMaxLateness, "-1h"), `notyet-max-lateness "-1h" is negative: ` + durationFix},
		{scheduled(HeaderTag, ""), `notyet-tag has an empty tag: ` + tagFix},
		{scheduled(HeaderTag, "a,,b"), `notyet-tag "a,,b" has an empty tag: ` + tagFix},
		{scheduled(HeaderTag, "a,b,"), `notyet-tag "a,b," has an empty tag: ` + tagFix},
		{scheduled(HeaderTag, "a,b,c,d,e"), `notyet-tag "a,b,c,d,e" has 5 tags: ` + tagFix},
		{scheduled(HeaderTag, "a, b"), `notyet-tag "a, b" has a tag with another character: ` + tagFix},
		{scheduled(HeaderTag, "größe"), `notyet-tag "größe" has a tag with another character: ` + tagFix},
		{scheduled(HeaderTag, "a/b"), `notyet-tag "a/b" has a tag with another character: ` + tagFix},
		{scheduled(HeaderTag, "\x00"), `notyet-tag "\x00" has a tag with another character: ` + tagFix},
		{scheduled(HeaderTag, long[:65]), `notyet-tag "` + long[:65] + `" has a tag of more than 64 bytes: ` + tagFix},
		{operation("cancel", HeaderTag, "a"), `notyet-tag "a" means nothing with notyet-op cancel: leave it out, or change notyet-op`},
		{operation("fire", HeaderTag, "a"), `notyet-tag "a" means nothing with notyet-op fire: leave it out, or change notyet-op`},
		{scheduled(HeaderMaxAttempts, "0"), `notyet-max-attempts "0" is not a number of deliveries: write an integer from 1 to 10000`},
		{scheduled(HeaderMaxAttempts, "2147483648"), `notyet-max-attempts "2147483648" is not a number of deliveries: write an integer from 1 to 10000`},
		{scheduled(HeaderMaxAttempts, "10001"), `notyet-max-attempts "10001" is above 10000: write an integer from 1 to 10000`},
		{scheduled(HeaderAckTimeout, "99ms"), `notyet-ack-timeout "99ms" is below 100ms: write at least 100ms`},
		{intake(HeaderURL, "https://a", HeaderAt, "1790000060000", HeaderAckTimeout, "99ms"), `notyet-ack-timeout "99ms" is below 100ms: write at least 100ms`},
		{intake(HeaderOp, "timer", HeaderTopic, "orders", HeaderID, "t", HeaderEvery, "1h", HeaderAckTimeout, "99ms"), `notyet-ack-timeout "99ms" is below 100ms: write at least 100ms`},
		{scheduled(HeaderBackoff, "steps:"+strings.Repeat("1s,", 32)+"1s"), `notyet-backoff "steps:` + strings.Repeat("1s,", 24) + `1s…" has 33 steps, and at most 32 may be: write fixed:5s, exponential:1s:10m or steps:5s,5m,30m,2h`},
		{scheduled(HeaderBackoff, "steps:5s,,1m"), `notyet-backoff "steps:5s,,1m" has a step 2 that is empty: write fixed:5s, exponential:1s:10m or steps:5s,5m,30m,2h`},
		{scheduled(HeaderBackoff, "steps:5s,1m,0s"), `notyet-backoff "steps:5s,1m,0s" has a step 3 that is zero: write fixed:5s, exponential:1s:10m or steps:5s,5m,30m,2h`},
		{scheduled(HeaderBackoff, "5s"), `notyet-backoff "5s" is not a backoff: write fixed:5s, exponential:1s:10m or steps:5s,5m,30m,2h`},
		{scheduled(HeaderBackoff, "fixed:5s:6s"), `notyet-backoff "fixed:5s:6s" is not a backoff: write fixed:5s, exponential:1s:10m or steps:5s,5m,30m,2h`},
		{scheduled(HeaderBackoff, "exponential:5s"), `notyet-backoff "exponential:5s" is not a backoff: write fixed:5s, exponential:1s:10m or steps:5s,5m,30m,2h`},
		{scheduled(HeaderBackoff, "fixed:0s"), `notyet-backoff "fixed:0s" has a pause that is zero: write fixed:5s, exponential:1s:10m or steps:5s,5m,30m,2h`},
		{scheduled(HeaderBackoff, "exponential:1s:x"), `notyet-backoff "exponential:1s:x" has a longest pause that is not a duration: write fixed:5s, exponential:1s:10m or steps:5s,5m,30m,2h`},
		{scheduled(HeaderBackoff, "exponential:2s:1s"), `notyet-backoff "exponential:2s:1s" has a longest pause below its first: write fixed:5s, exponential:1s:10m or steps:5s,5m,30m,2h`},
		{scheduled(HeaderCron, "* * * * *"), `notyet-cron "* * * * *" means nothing with notyet-op schedule: leave it out, or change notyet-op`},

		{operation("cancel", HeaderAt, "1790000060000"), `notyet-at "1790000060000" means nothing with notyet-op cancel: leave it out, or change notyet-op`},
		{operation("cancel", HeaderEvents, "none"), `notyet-events "none" means nothing with notyet-op cancel: leave it out, or change notyet-op`},
		{operation("fire", HeaderDelay, "1s"), `notyet-delay "1s" means nothing with notyet-op fire: leave it out, or change notyet-op`},
		{operation("fire", HeaderPriority, "high"), `notyet-priority "high" means nothing with notyet-op fire: leave it out, or change notyet-op`},
		{intake(HeaderOp, "fire", HeaderTopic, "orders"), "notyet-id is missing: notyet-op fire needs the id"},

		{operation("timer"), "notyet-cron is missing: send notyet-cron or notyet-every"},
		{operation("timer", HeaderCron, " \n"), `notyet-cron is not a cron expression: write 5 fields (minute hour day month weekday), 6 with seconds in front, or a nickname such as @daily`},
		{operation("timer", HeaderCron, "* * * * \xff"), "notyet-cron \"* * * * \uFFFD\" is not a cron expression: write 5 fields (minute hour day month weekday), 6 with seconds in front, or a nickname such as @daily"},
		{operation("timer", HeaderEvery, "24h", HeaderTimezone, "Europe/Berlin"), `notyet-timezone "Europe/Berlin" means nothing beside notyet-every, which counts elapsed time: leave it out, or send notyet-cron instead`},
		{operation("timer", HeaderCron, "* * * * *", HeaderTimezone, "Mars/Olympus"), `notyet-timezone "Mars/Olympus" is not a time zone: write an IANA name such as Europe/Berlin, or UTC`},
		{operation("timer", HeaderCron, "* * * * *", HeaderFrom, "2027-01-31T08:00"), `notyet-from "2027-01-31T08:00" is a local time without a time zone: add its offset, such as Z or +01:00, or send notyet-timezone`},
		{operation("timer", HeaderEvery, "1h", HeaderUntil, "2027-01-31T08:00"), `notyet-until "2027-01-31T08:00" is a local time without a time zone: add its offset, such as Z or +01:00`},
		{operation("timer", HeaderCron, "* * * * *", HeaderMisfire, "never"), `notyet-misfire "never" is none of its values: write one of once, skip, all`},
		{operation("timer", HeaderCron, "* * * * *", HeaderIfExists, "keep"), `notyet-if-exists "keep" means nothing with notyet-op timer: leave it out, or change notyet-op`},
		{operation("timer-enable", HeaderCron, "* * * * *"), `notyet-cron "* * * * *" means nothing with notyet-op timer-enable: leave it out, or change notyet-op`},
		{
			intake(HeaderOp, "timer-delete", HeaderTopic, "orders", HeaderID, long[:242]),
			`notyet-id "` + long[:80] + `…" leaves no room for the time of a run: write a timer id of at most 241 bytes`,
		},

		{intake(HeaderURL, "https://a/", HeaderTopic, "orders", HeaderAt, "1790000060000"), `notyet-url "https://a/" stands beside notyet-topic: send one of them`},
		{intake(HeaderURL, "https://a/", HeaderURL, "https://a/", HeaderAt, "1790000060000"), `notyet-url "https://a/" is repeated: send it once`},
		{intake(HeaderMethod, "PUT", HeaderTopic, "orders", HeaderAt, "1790000060000"), `notyet-method "PUT" means nothing without notyet-url: leave it out, or send notyet-url`},
		{intake(HeaderURL, "https://a/", HeaderMethod, "put", HeaderAt, "1790000060000"), `notyet-method "put" is none of its values: write one of POST, PUT, PATCH, DELETE, GET`},
		{intake(HeaderOp, "cancel", HeaderID, "x", HeaderURL, "https://a/", HeaderMethod, "PUT"), `notyet-method "PUT" means nothing with notyet-op cancel: leave it out, or change notyet-op`},
		{intake(HeaderTopic, "https://a", HeaderAt, "1790000060000"), `notyet-topic "https://a" is an origin: send the whole URL in notyet-url instead`},
		{intake(HeaderOp, "cancel", HeaderID, "x", HeaderTopic, "https://a/b"), `notyet-topic "https://a…" has more than an origin: write https://a`},
		{intake(HeaderURL, "ftp://a/", HeaderAt, "1790000060000"), `notyet-url "ftp://a/" is not an absolute http or https URL: write an absolute http or https URL, such as https://shop.example/hooks`},
		{intake(HeaderURL, "https://:80/", HeaderAt, "1790000060000"), `notyet-url "https://:80/" has no valid host: write a name such as shop.example, or an address such as 192.0.2.1 or [2001:db8::1]`},
		{intake(HeaderURL, "https://a/\xff", HeaderAt, "1790000060000"), `notyet-url "https://a…" is not a URL: write an absolute http or https URL, such as https://shop.example/hooks`},
	} {
		req, err := Decode(c.record, Limits{})
		require.EqualError(t, err, c.want)
		require.IsType(t, &Rejection{}, err)
		require.NotContains(t, err.Error(), "\n")
		require.Zero(t, req)
	}
}

// TestDecodeRejectsEveryMisnamedHeader: no header that looks like one of notyet's is silently
// ignored.
func TestDecodeRejectsEveryMisnamedHeader(t *testing.T) {
	for i, name := range headerNames {
		request := header(1)<<i&hNotRequest == 0
		for what, r := range map[string]*kgo.Record{
			"upper case":          scheduled(strings.ToUpper(name), "1"),
			"title case":          scheduled("N"+name[1:], "1"),
			"one letter":          scheduled(name[:len(name)-1]+strings.ToUpper(name[len(name)-1:]), "1"),
			"trailing space":      scheduled(name+" ", "1"),
			"NUL":                 scheduled(name+"\x00", "1"),
			"not UTF-8":           scheduled(name+"\xff", "1"),
			"one more s":          scheduled(name+"s", "1"),
			"value no UTF-8":      intake(HeaderTopic, "orders", name, "\xff\xfe"),
			"value is NUL":        intake(HeaderTopic, "orders", name, "\x00"),
			"twice":               intake(name, "1", name, "1"),
			"twice, in two cases": intake(name, "1", strings.ToUpper(name), "1"),
		} {
			if what == "value is NUL" && name == HeaderID {
				continue // an id is any UTF-8
			}
			_, err := Decode(r, Limits{})
			var rej *Rejection
			require.ErrorAs(t, err, &rej, "%s %s", name, what)
			require.NotContains(t, rej.Error(), "\x00")
			require.Regexp(t, `^(?i)notyet-`, rej.Header, "%s %s", name, what)
		}
		if !request {
			_, err := Decode(scheduled(name, "1"), Limits{})
			require.ErrorContains(t, err, name+` "1" is not part of a request`)
		}
	}
	for _, future := range []string{"notyet-timers", "notyet-method"} {
		_, err := Decode(scheduled(future, "1"), Limits{})
		require.ErrorContains(t, err, future)
	}
}

// TestDecodeTimersHeadersOnOtherOps: a timer's header on a request of another kind is rejected.
func TestDecodeTimersHeadersOnOtherOps(t *testing.T) {
	for op := range opNames {
		if Op(op) == OpTimer {
			continue
		}
		for name, v := range map[string]string{
			HeaderCron: "* * * * *", HeaderEvery: "1m", HeaderTimezone: "UTC", HeaderFrom: "1790000060000", HeaderUntil: "1790000060000",
			HeaderJitter: "1s", HeaderMisfire: "once", HeaderOverlap: "allow",
		} {
			r := operation(opNames[op], name, v)
			problem := " means nothing with notyet-op " + opNames[op]
			if Op(op) == OpSchedule {
				r = scheduled(name, v)
				if name == HeaderTimezone {
					problem = " means nothing without a local time"
				}
			}
			_, err := Decode(r, Limits{})
			require.ErrorContains(t, err, name+` "`+v+`"`+problem)
		}
	}
}

// TestDecodeTargetsOfEveryOp: a sender that may not schedule for a target may not cancel, fire or
// replace there either. Internal topics are never a target.
func TestDecodeTargetsOfEveryOp(t *testing.T) {
	limits := Limits{AllowedTargets: []string{"orders", "bills.*"}, InternalTopics: []string{"in", "rep", "res"}}
	for _, op := range opNames {
		request := func(target string) *kgo.Record {
			r := intake(HeaderOp, op, HeaderTopic, target, HeaderID, "x")
			switch op {
			case "schedule":
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderDelay, Value: []byte("1s")})
			case "timer":
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderCron, Value: []byte("* * * * *")})
			}
			return r
		}
		for _, target := range []string{"orders", "bills.a", "bills."} {
			_, err := Decode(request(target), limits)
			require.NoError(t, err, "%s %s", op, target)
		}
		for _, target := range []string{"order", "orders2", "Orders", "bills", "xbills.a", "payments"} {
			_, err := Decode(request(target), limits)
			require.ErrorContains(t, err, "is not allowed on this intake topic", "%s %s", op, target)
		}
		for _, target := range []string{"__consumer_offsets", "__x", "in", "rep", "res", TopicIntake} {
			_, err := Decode(request(target), Limits{AllowedTargets: []string{"*"}, InternalTopics: limits.InternalTopics})
			require.ErrorContains(t, err, "is an internal topic", "%s %s", op, target)
		}
	}
}

// Each op on an intake with a target of its own is about that target, whether or not it names it, and about no
// other.
func TestDecodeOnAnIntakeWithATarget(t *testing.T) {
	l := Limits{Target: "orders", AllowedTargets: []string{"orders"}, Aliases: Aliases}
	require.NoError(t, l.Validate())
	forOp := map[string][]string{"schedule": {HeaderDelay, "1m"}, "timer": {HeaderEvery, "1h"}}
	for _, op := range opNames {
		rest := append([]string{HeaderOp, op, HeaderID, "x"}, forOp[op]...)
		for _, named := range [][]string{nil, {HeaderTopic, "orders"}} {
			req, err := Decode(intake(append(rest, named...)...), l)
			require.NoError(t, err, op)
			require.Equal(t, "orders", req.Topic)
		}
		for want, other := range map[string][]string{
			`notyet-topic "bills" is not the target of this intake topic: leave it out, write orders, or use another intake topic`:             {HeaderTopic, "bills"},
			`notyet-topic "https://a.example" is not the target of this intake topic: leave it out, write orders, or use another intake topic`: {HeaderTopic, "https://a.example"},
			`notyet-url "https://a.example" is not the target of this intake topic: leave it out, or use another intake topic`:                 {HeaderURL, "https://a.example/hook?secret"},
			`notyet-topic is not a topic name: write 1 to 249 of a-z A-Z 0-9 . _ - (not . or .. alone)`:                                        {HeaderTopic, ""},
		} {
			_, err := Decode(intake(append(rest, other...)...), l)
			require.ErrorContains(t, err, want, op)
		}
	}

	req, err := Decode(aliased([]byte("x"), []byte("v"), etf1Epoch, "1700000060"), l)
	require.NoError(t, err)
	require.Equal(t, []any{OpSchedule, "orders", "x"}, []any{req.Op, req.Topic, req.ID})
	req, err = Decode(aliased(nil, nil, natsAt, "@at 2027-01-01T00:00:00Z", natsTarget, "orders"), l)
	require.NoError(t, err)
	require.Equal(t, "orders", req.Topic)
	_, err = Decode(aliased(nil, nil, natsAt, "@at 2027-01-01T00:00:00Z", natsTarget, "bills"), l)
	require.EqualError(t, err, `Nats-Schedule-Target "bills" is not the target of this intake topic: leave it out, write orders, or use another intake topic`)

	_, err = Decode(intake(HeaderAt, "soon"), l)
	require.Equal(t, "orders", err.(*Rejection).Topic, "a rejection is about the target")
	for _, target := range []string{"__x", TopicResults, "a b", "https://a.example"} {
		require.ErrorContains(t, Limits{Target: target}.Validate(), "checking target", target)
	}
}

func TestRejectionIsAddressed(t *testing.T) {
	for _, c := range []struct {
		record    *kgo.Record
		id, topic string
	}{
		{scheduled("notyet-x", "1"), "order-1", "orders"},
		{intake("notyet-x", "1", HeaderID, "late", HeaderTopic, "orders"), "late", "orders"}, // read although the first header is bad
		{intake(HeaderTopic, "orders"), "notyet.intake/3/42", "orders"},
		{intake(HeaderTopic, "orders", HeaderID, "a\xff"), "notyet.intake/3/42", "orders"},
		{intake(HeaderTopic, "or ders", HeaderID, "a"), "a", ""},
		{scheduled(HeaderID, "order-2"), "notyet.intake/3/42", "orders"}, // two ids: neither is the one
	} {
		_, err := Decode(c.record, Limits{})
		var rej *Rejection
		require.ErrorAs(t, err, &rej)
		require.Equal(t, c.id, rej.ID)
		require.Equal(t, c.topic, rej.Topic)
	}
}

// A rejection speaks only for what its intake may speak for: about any other target it has the default id and no topic,
// and says in its reason alone what the record claims.
func TestRejectionSpeaksForItsIntakeOnly(t *testing.T) {
	const byDefault, typo = "notyet.intake/3/42", `notyet-note "pay again" is not a header of notyet: remove it; names that start with notyet- are reserved`
	some, own := Limits{AllowedTargets: []string{"shop.*", "https://*.shop.example"}}, Limits{Target: "shop.a", AllowedTargets: []string{"shop.a"}}
	aliasing := Limits{AllowedTargets: []string{"shop.*"}, Aliases: Aliases}
	for name, c := range map[string]struct {
		record           *kgo.Record
		limits           Limits
		topic, id, claim string
	}{
		"its own target":              {intake("notyet-note", "pay again", HeaderTopic, "shop.a", HeaderID, "77"), some, "shop.a", "77", ""},
		"another's":                   {intake("notyet-note", "pay again", HeaderTopic, "bank.a", HeaderID, "77"), some, "", byDefault, `the target "bank.a" and the id "77"`},
		"another's, without an id":    {intake("notyet-note", "pay again", HeaderTopic, "bank.a"), some, "", byDefault, `the target "bank.a"`},
		"another's origin":            {intake("notyet-note", "pay again", HeaderURL, "https://bank.example/pay?secret", HeaderID, "77"), some, "", byDefault, `the target "https://bank.example" and the id "77"`},
		"its own origin":              {intake("notyet-note", "pay again", HeaderURL, "https://a.shop.example/pay", HeaderID, "77"), some, "https://a.shop.example", "77", ""},
		"no target":                   {intake("notyet-note", "pay again", HeaderID, "77"), some, "", byDefault, `the id "77"`},
		"two targets":                 {intake("notyet-note", "pay again", HeaderTopic, "shop.a", HeaderTopic, "bank.a", HeaderID, "77"), some, "", byDefault, `the id "77"`},
		"a target that is none":       {intake("notyet-note", "pay again", HeaderTopic, "bank a", HeaderID, "77"), some, "", byDefault, `the target "bank a" and the id "77"`},
		"an internal topic":           {intake("notyet-note", "pay again", HeaderTopic, TopicResults, HeaderID, "77"), Limits{}, "", byDefault, `the target "notyet.results" and the id "77"`},
		"the intake's own target":     {intake("notyet-note", "pay again", HeaderID, "77"), own, "shop.a", "77", ""},
		"beside its own target":       {intake("notyet-note", "pay again", HeaderTopic, "shop.b", HeaderID, "77"), own, "", byDefault, `the target "shop.b" and the id "77"`},
		"an intake for all, no topic": {intake("notyet-note", "pay again", HeaderID, "77"), Limits{}, "", "77", ""},
		"another's, by an alias":      {aliased([]byte("77"), []byte("v"), etf1Epoch, "soon", etf1Target, "bank.a"), aliasing, "", "notyet.intake/2/7", `the target "bank.a" and the id "77"`},
	} {
		_, err := Decode(c.record, c.limits)
		rej, ok := errors.AsType[*Rejection](err)
		require.True(t, ok, name)
		require.Equal(t, []string{c.topic, c.id, c.claim}, []string{rej.Topic, rej.ID, rej.Claim}, name)
		if strings.HasPrefix(rej.Error(), "notyet-note") {
			want := typo
			if c.claim != "" {
				want += " (the request names " + c.claim + ")"
			}
			require.EqualError(t, err, want, name)
		}
	}
	_, err := Decode(intake(HeaderTopic, "bank.a", HeaderID, "77", HeaderDelay, "1h"), some)
	require.EqualError(t, err, `notyet-topic "bank.a" is not allowed on this intake topic: ask its operator, or use another one (the request names the id "77")`, "once is enough")
}

func TestDecodeLimits(t *testing.T) {
	refuseAll := func(c CallbackURL) *Rejection {
		return &Rejection{Header: HeaderURL, Value: c.Origin, Problem: "is refused", Fix: "ask"}
	}
	big := scheduled()
	big.Value = make([]byte, 11)
	for _, c := range []struct {
		record *kgo.Record
		limits Limits
		want   string // "" = accepted
	}{
		{big, Limits{MaxValueBytes: 11}, ""},
		{big, Limits{MaxValueBytes: 10}, "record value has 11 bytes: send at most 10, or a reference to what is larger"},
		{scheduled(), Limits{MaxDelay: time.Minute}, ""},
		{
			scheduled(), Limits{MaxDelay: time.Minute - time.Millisecond},
			`notyet-at "1790000060000" is beyond the horizon of 59.999s from 2026-09-21T14:13:20Z: schedule it nearer, or ask the operator for a longer horizon`,
		},
		{scheduled(), Limits{AllowedTargets: []string{"payments", "ord*"}}, ""},
		{scheduled(), Limits{AllowedTargets: []string{"payments", "["}}, `notyet-topic "orders" is not allowed on this intake topic: ask its operator, or use another one (the request names the id "order-1")`},
		{operation("cancel"), Limits{AllowedTargets: []string{"payments"}}, `notyet-topic "orders" is not allowed on this intake topic: ask its operator, or use another one (the request names the id "order-1")`},
		{scheduled(), Limits{InternalTopics: []string{"orders"}}, `notyet-topic "orders" is an internal topic: name a topic of your own (the request names the id "order-1")`},
		{intake(HeaderTopic, TopicResults, HeaderAt, "1790000060000"), Limits{InternalTopics: []string{"orders"}}, ""},
		{intake(HeaderTopic, TopicIntake, HeaderAt, "1790000060000"), Limits{InternalTopics: []string{}}, `notyet-topic "notyet.intake" is an internal topic: name a topic of your own`},
		{intake(HeaderURL, "https://a/b", HeaderAt, "1790000060000"), Limits{AllowedTargets: []string{"*"}}, `notyet-url "https://a" is not allowed on this intake topic: ask its operator, or use another one`},
		{intake(HeaderURL, "https://a/b", HeaderAt, "1790000060000"), Limits{AllowedTargets: []string{"https://a"}}, ""},
		{intake(HeaderURL, "https://x.a:81/b", HeaderAt, "1790000060000"), Limits{AllowedTargets: []string{"https://*.a:81"}}, ""},
		{intake(HeaderOp, "cancel", HeaderID, "x", HeaderTopic, "https://a"), Limits{AllowedTargets: []string{"*"}}, `notyet-topic "https://a" is not allowed on this intake topic: ask its operator, or use another one (the request names the id "x")`},
		{intake(HeaderOp, "cancel", HeaderID, "x", HeaderURL, "https://a/b"), Limits{AllowedTargets: []string{"https://b"}}, `notyet-url "https://a" is not allowed on this intake topic: ask its operator, or use another one (the request names the id "x")`},
		{intake(HeaderURL, "https://a/b", HeaderAt, "1790000060000"), Limits{Callbacks: refuseAll}, `notyet-url "https://a" is refused: ask`},
		{intake(HeaderOp, "timer", HeaderID, "x", HeaderCron, "@daily", HeaderURL, "https://a/b"), Limits{Callbacks: refuseAll}, `notyet-url "https://a" is refused: ask`},
		{intake(HeaderOp, "cancel", HeaderID, "x", HeaderURL, "https://a/b"), Limits{Callbacks: refuseAll}, ""},
	} {
		_, err := Decode(c.record, c.limits)
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, c.want)
		}
	}
}

// TestDecodeLimitsOfSize: at each bound a request is taken, one beyond it is rejected by the
// bound's name, whatever it asks for.
func TestDecodeLimitsOfSize(t *testing.T) {
	const own = len(HeaderTopic+"orders") + len(HeaderID+"order-1") + len(HeaderAt+"1790000060000")
	fill := func(n int) []byte { return make([]byte, n) }
	more := func(r *kgo.Record, n int) *kgo.Record {
		r.Headers = append(r.Headers, make([]kgo.RecordHeader, n)...)
		return r
	}
	with := func(key, value int, headers ...kgo.RecordHeader) *kgo.Record {
		r := scheduled()
		r.Key, r.Value, r.Headers = fill(key), fill(value), append(r.Headers, headers...)
		return r
	}
	cancel := operation("cancel")
	cancel.Value = fill(DefaultMaxValueBytes + 1)
	for name, c := range map[string]struct {
		record *kgo.Record
		limits Limits
		want   string // "" = accepted
	}{
		"key":              {record: with(MaxKeyBytes, 0)},
		"key beyond":       {record: with(MaxKeyBytes+1, 0), want: "record key has 65537 bytes: send at most 65536, or a reference to what is larger"},
		"headers":          {record: more(scheduled(), MaxHeaders-3)},
		"headers beyond":   {record: more(scheduled(), MaxHeaders-2), want: "record headers are 129 in number: send at most 128, or a reference to what is larger"},
		"10,000 headers":   {record: more(scheduled(), 10_000), want: "record headers are 10003 in number: send at most 128, or a reference to what is larger"},
		"header":           {record: with(0, 0, kgo.RecordHeader{Key: "h", Value: fill(MaxHeaderBytes - own - 1)})},
		"header beyond":    {record: with(0, 0, kgo.RecordHeader{Key: "h", Value: fill(MaxHeaderBytes - own)}), want: "record headers have 65537 bytes: send at most 65536, or a reference to what is larger"},
		"name of a header": {record: with(0, 0, kgo.RecordHeader{Key: strings.Repeat("h", 20<<20)}), want: "record headers have 20971576 bytes: send at most 65536, or a reference to what is larger"},
		"name like ours":   {record: with(0, 0, kgo.RecordHeader{Key: Prefix + strings.Repeat("h", 20<<20)}), want: "record headers have 20971583 bytes: send at most 65536, or a reference to what is larger"},
		"value":            {record: with(0, DefaultMaxValueBytes)},
		"value beyond":     {record: with(0, DefaultMaxValueBytes+1), want: "record value has 1048577 bytes: send at most 1048576, or a reference to what is larger"},
		"value of its own": {record: with(0, MaxValueBytes), limits: Limits{MaxValueBytes: MaxValueBytes}},
		"never more":       {record: with(0, MaxValueBytes+1), limits: Limits{MaxValueBytes: 1 << 30}, want: "record value has 8388609 bytes: send at most 8388608, or a reference to what is larger"},
		"of a cancel too":  {record: cancel, want: "record value has 1048577 bytes: send at most 1048576, or a reference to what is larger"},
		"all at once":      {record: with(MaxKeyBytes, DefaultMaxValueBytes, kgo.RecordHeader{Key: "h", Value: fill(MaxHeaderBytes - own - 1)})},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(c.record, c.limits)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
			var rej *Rejection
			require.ErrorAs(t, err, &rej)
			require.Equal(t, "order-1", rej.ID, "the answer goes to whoever asked")
		})
	}
}

func TestLimitsValidate(t *testing.T) {
	require.NoError(t, Limits{}.Validate())
	require.NoError(t, Limits{AllowedTargets: []string{"a*", "[a-c]"}}.Validate())
	require.ErrorContains(t, Limits{AllowedTargets: []string{"a["}}.Validate(), `"a["`)
	require.Error(t, Limits{MaxDelay: -1}.Validate())
	require.NoError(t, Limits{MaxValueBytes: MaxValueBytes}.Validate())
	require.ErrorContains(t, Limits{MaxValueBytes: MaxValueBytes + 1}.Validate(), "at most 8388608")
}

// TestDecodeRecordTimestamp: the record's timestamp must itself be a valid time.
func TestDecodeRecordTimestamp(t *testing.T) {
	for _, ms := range []int64{-1, maxMillis + 1, 317000000000000, math.MaxInt64} {
		r := intake(HeaderTopic, "orders", HeaderDelay, "1s")
		r.Timestamp = time.UnixMilli(ms)
		_, err := Decode(r, Limits{})
		require.ErrorContains(t, err, "record timestamp", ms)
	}
	r := intake(HeaderTopic, "orders", HeaderDelay, "1ms")
	r.Timestamp = time.UnixMilli(maxMillis)
	_, err := Decode(r, Limits{})
	require.ErrorContains(t, err, "beyond the horizon")
}

// TestDecodeDefaultIDTooLong: no default id is longer than a store can hold.
func TestDecodeDefaultIDTooLong(t *testing.T) {
	r := intake(HeaderTopic, "orders", HeaderDelay, "1s")
	r.Partition, r.Offset = math.MaxInt32, math.MaxInt64
	r.Topic = strings.Repeat("i", MaxIntakeTopicLen)
	req, err := Decode(r, Limits{})
	require.NoError(t, err)
	require.Len(t, req.ID, MaxIDLen)
	r.Topic += "i"
	_, err = Decode(r, Limits{})
	require.EqualError(t, err, "notyet-id is missing: give one; the intake topic's name is too long for a default")
}

// TestDecodeBusinessHeaders: whatever their place among ours, they come out in order and untouched.
func TestDecodeBusinessHeaders(t *testing.T) {
	ours := scheduled().Headers
	business := []kgo.RecordHeader{
		{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "", Value: []byte{}}, {Key: "Notye-x", Value: []byte{0xff}},
		{Key: "notyet", Value: []byte("no prefix")}, {Key: "notyet_at", Value: []byte("1")},
	}
	for mask := range 1 << (len(ours) + len(business)) {
		var mixed []kgo.RecordHeader
		o, b := 0, 0
		for bit := range len(ours) + len(business) {
			if mask>>bit&1 == 0 && o < len(ours) {
				mixed, o = append(mixed, ours[o]), o+1
			} else if b < len(business) {
				mixed, b = append(mixed, business[b]), b+1
			}
		}
		mixed = append(append(mixed, ours[o:]...), business[b:]...)
		r := scheduled()
		r.Headers = mixed
		req, err := Decode(r, Limits{})
		require.NoError(t, err)
		require.Equal(t, business, req.Headers)
		_ = append(req.Headers, kgo.RecordHeader{Key: "more"}) // must not write into the record
		require.Equal(t, mixed, r.Headers)
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, r := range map[string]*kgo.Record{
		"at":       scheduled("traceparent", "00-1", "content-type", "json"),
		"delay":    intake("traceparent", "00-1", HeaderTopic, "orders", HeaderDelay, "PT30M"),
		"rfc3339":  intake(HeaderTopic, "orders", HeaderID, "order-1", HeaderAt, "2026-10-01T08:00:00.123456789+02:00"),
		"settings": scheduled(HeaderAck, "report", HeaderBackoff, "fixed:5s", HeaderMaxAttempts, "3", HeaderVersion, "7"),
		"cancel":   operation("cancel", HeaderVersion, "7"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(r, Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
