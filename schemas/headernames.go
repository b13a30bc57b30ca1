package schemas

import (
	"math/bits"
	"strings"
)

// Prefix starts the name of each of notyet's headers. Names are lower case. A header with this
// prefix in another case or with an unknown name rejects the request.
const Prefix = "notyet-"

// Headers of a request.
const (
	HeaderOp          = "notyet-op"
	HeaderTopic       = "notyet-topic"
	HeaderID          = "notyet-id"
	HeaderAt          = "notyet-at"
	HeaderDelay       = "notyet-delay"
	HeaderIfExists    = "notyet-if-exists"
	HeaderMerge       = "notyet-merge"
	HeaderMaxWait     = "notyet-max-wait"
	HeaderVersion     = "notyet-version"
	HeaderPriority    = "notyet-priority"
	HeaderAck         = "notyet-ack"
	HeaderAckTimeout  = "notyet-ack-timeout"
	HeaderMaxAttempts = "notyet-max-attempts"
	HeaderBackoff     = "notyet-backoff"
	HeaderMaxLateness = "notyet-max-lateness"
	HeaderTag         = "notyet-tag" // of a delivered record, too
	HeaderEvents      = "notyet-events"
	HeaderCron        = "notyet-cron"
	HeaderEvery       = "notyet-every"
	HeaderTimezone    = "notyet-timezone"
	HeaderFrom        = "notyet-from"
	HeaderUntil       = "notyet-until"
	HeaderJitter      = "notyet-jitter"
	HeaderMisfire     = "notyet-misfire"
	HeaderOverlap     = "notyet-overlap"
	HeaderURL         = "notyet-url"
	HeaderMethod      = "notyet-method"
)

// Headers of a delivered record, in addition to HeaderID.
const (
	HeaderDue      = "notyet-due"
	HeaderAttempt  = "notyet-attempt"
	HeaderDelivery = "notyet-delivery"
	HeaderReplay   = "notyet-replay"
	HeaderTimer    = "notyet-timer"
)

// Headers of a report and of a result event. Reports also have HeaderTopic, HeaderID,
// HeaderAttempt.
const (
	HeaderStatus     = "notyet-status"
	HeaderRetryAfter = "notyet-retry-after"
	HeaderState      = "notyet-state"
	HeaderRequest    = "notyet-request"
)

// header is a set of header names, one bit each: a check for duplicates, or for headers that the op
// does not take, is one AND per record.
type header uint64

const (
	hOp header = 1 << iota
	hTopic
	hID
	hAt
	hDelay
	hIfExists
	hMerge
	hMaxWait
	hVersion
	hPriority
	hAck
	hAckTimeout
	hMaxAttempts
	hBackoff
	hMaxLateness
	hTag
	hEvents
	hCron
	hEvery
	hTimezone
	hFrom
	hUntil
	hJitter
	hMisfire
	hOverlap
	hURL
	hMethod
	// From here on: never part of a request.
	hDue
	hAttempt
	hDelivery
	hReplay
	hTimer
	hStatus
	hRetryAfter
	hState
	hRequest

	hNotRequest = hDue | hAttempt | hDelivery | hReplay | hTimer | hStatus | hRetryAfter | hState | hRequest
	hSettings   = hIfExists | hMerge | hMaxWait | hPriority | hAck | hAckTimeout | hMaxAttempts | hBackoff | hMaxLateness | hTag | hEvents
	hRuns       = hCron | hEvery | hTimezone | hFrom | hUntil | hJitter | hMisfire | hOverlap
	hTarget     = hOp | hTopic | hURL | hID | hVersion
)

// headerNames is in the order of the bits.
var headerNames = [...]string{
	HeaderOp, HeaderTopic, HeaderID, HeaderAt, HeaderDelay, HeaderIfExists, HeaderMerge, HeaderMaxWait, HeaderVersion,
	HeaderPriority, HeaderAck, HeaderAckTimeout, HeaderMaxAttempts, HeaderBackoff, HeaderMaxLateness, HeaderTag, HeaderEvents,
	HeaderCron, HeaderEvery, HeaderTimezone, HeaderFrom, HeaderUntil, HeaderJitter, HeaderMisfire, HeaderOverlap, HeaderURL, HeaderMethod,
	HeaderDue, HeaderAttempt, HeaderDelivery, HeaderReplay, HeaderTimer, HeaderStatus, HeaderRetryAfter, HeaderState, HeaderRequest,
}

// name returns the name of the lowest header in the set.
func (h header) name() string { return headerNames[bits.TrailingZeros64(uint64(h))] }

// allowed lists which headers each op takes. A header without effect is refused: `notyet-at` on a
// cancel is a mistake, and `notyet-events: none` on a cancel would suppress nothing.
var allowed = [...]header{
	OpSchedule:     hTarget | hMethod | hAt | hDelay | hTimezone | hSettings,
	OpCancel:       hTarget,
	OpFire:         hTarget,
	OpStop:         hTarget,
	OpTimer:        hTarget | hMethod | hRuns | hSettings&^(hIfExists|hMerge|hMaxWait),
	OpTimerEnable:  hTarget,
	OpTimerDisable: hTarget,
	OpTimerDelete:  hTarget,
}

// ours reports whether a header's name starts with Prefix, in any case.
func ours(key string) bool {
	return len(key) >= len(Prefix) && key[0]|0x20 == 'n' && strings.EqualFold(key[:len(Prefix)], Prefix)
}

// headerBits has the bit of each name.
var headerBits = func() map[string]header {
	out := make(map[string]header, len(headerNames))
	for i, name := range headerNames {
		out[name] = 1 << i
	}
	return out
}()

// lookup returns the bit of a header's name, or 0.
func lookup(key string) header { return headerBits[key] }
