package schemas

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The headers that each op takes in addition to topic, id and version, as in the contract's tables.
// Every other notyet header is rejected by name: a header without effect would mean that the
// delivery differs from what the sender wanted.
func TestEveryHeaderWithEveryOp(t *testing.T) {
	delivery := []string{HeaderPriority, HeaderAck, HeaderAckTimeout, HeaderMaxAttempts, HeaderBackoff, HeaderMaxLateness, HeaderTag, HeaderEvents}
	target := []string{HeaderOp, HeaderTopic, HeaderID, HeaderVersion}
	takes := map[Op][]string{
		OpSchedule: slices.Concat(target, delivery, []string{HeaderAt, HeaderDelay, HeaderTimezone, HeaderIfExists, HeaderMerge, HeaderMaxWait}),
		OpTimer:    slices.Concat(target, delivery, []string{HeaderCron, HeaderTimezone, HeaderFrom, HeaderUntil, HeaderJitter, HeaderMisfire, HeaderOverlap}),
		OpCancel:   target, OpStop: target, OpFire: target, OpTimerEnable: target, OpTimerDisable: target, OpTimerDelete: target,
	}
	values := map[string]string{
		HeaderVersion: "7", HeaderAt: "1790000060000", HeaderDelay: "1m", HeaderIfExists: "merge", HeaderMerge: "sum", HeaderMaxWait: "1h",
		HeaderPriority: "low", HeaderAck: "report", HeaderAckTimeout: "1m", HeaderMaxAttempts: "2", HeaderBackoff: "fixed:1s", HeaderMaxLateness: "1m", HeaderTag: "a",
		HeaderEvents: "all", HeaderCron: "0 0 * * *", HeaderTimezone: "UTC", HeaderMisfire: "skip", HeaderFrom: "1790000060000", HeaderUntil: "1790000060000", HeaderJitter: "1m", HeaderOverlap: "allow", HeaderEvery: "1m",
		HeaderDue: "1790000060000", HeaderAttempt: "1", HeaderDelivery: "x", HeaderReplay: "1", HeaderTimer: "t", HeaderStatus: "ok", HeaderRetryAfter: "1s", HeaderState: "dead", HeaderRequest: "x",
	}
	for op := range opNames {
		for _, name := range headerNames {
			value, ok := values[name]
			if !ok { // the target's own, which every request here has, or would have twice
				require.Contains(t, []string{HeaderOp, HeaderTopic, HeaderID, HeaderURL, HeaderMethod}, name, "give it a value above")
				continue
			}
			headers := []string{HeaderOp, opNames[op], HeaderTopic, "orders", HeaderID, "a"}
			switch {
			case Op(op) == OpSchedule && name == HeaderTimezone:
				headers = append(headers, HeaderAt, "2026-09-21T16:13:20")
			case Op(op) == OpSchedule && name != HeaderAt && name != HeaderDelay:
				headers = append(headers, HeaderAt, "1790000060000")
			case Op(op) == OpTimer && name != HeaderCron:
				headers = append(headers, HeaderCron, "0 0 * * *")
			}
			if Op(op) == OpSchedule && (name == HeaderMerge || name == HeaderMaxWait) {
				headers = append(headers, HeaderIfExists, "merge")
			}
			if Op(op) == OpTimer && name == HeaderEvery {
				continue // it stands in for cron, never beside it
			}
			_, err := Decode(intake(append(headers, name, value)...), Limits{})
			if slices.Contains(takes[Op(op)], name) {
				require.NoError(t, err, "%s with %s", opNames[op], name)
				continue
			}
			var rejection *Rejection
			require.ErrorAs(t, err, &rejection, "%s with %s", opNames[op], name)
			require.Equal(t, name, rejection.Header)
			require.NotEmpty(t, rejection.Fix)
		}
	}
}
