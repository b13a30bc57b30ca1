package schemas

import "math/bits"

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
	if len(key) < len(Prefix) || key[0]|0x20 != 'n' {
		return false
	}
	for i := 1; i < len(Prefix)-1; i++ {
		if key[i]|0x20 != Prefix[i] {
			return false
		}
	}
	return key[len(Prefix)-1] == '-'
}

// lookup returns the bit of a header's name, or 0. The compiler makes the switch a binary search.
func lookup(key string) header {
	switch key {
	case HeaderOp:
		return hOp
	case HeaderTopic:
		return hTopic
	case HeaderID:
		return hID
	case HeaderAt:
		return hAt
	case HeaderDelay:
		return hDelay
	case HeaderIfExists:
		return hIfExists
	case HeaderMerge:
		return hMerge
	case HeaderMaxWait:
		return hMaxWait
	case HeaderVersion:
		return hVersion
	case HeaderPriority:
		return hPriority
	case HeaderAck:
		return hAck
	case HeaderAckTimeout:
		return hAckTimeout
	case HeaderMaxAttempts:
		return hMaxAttempts
	case HeaderBackoff:
		return hBackoff
	case HeaderMaxLateness:
		return hMaxLateness
	case HeaderTag:
		return hTag
	case HeaderEvents:
		return hEvents
	case HeaderCron:
		return hCron
	case HeaderEvery:
		return hEvery
	case HeaderTimezone:
		return hTimezone
	case HeaderFrom:
		return hFrom
	case HeaderUntil:
		return hUntil
	case HeaderJitter:
		return hJitter
	case HeaderOverlap:
		return hOverlap
	case HeaderTimer:
		return hTimer
	case HeaderMisfire:
		return hMisfire
	case HeaderURL:
		return hURL
	case HeaderMethod:
		return hMethod
	case HeaderDue:
		return hDue
	case HeaderAttempt:
		return hAttempt
	case HeaderDelivery:
		return hDelivery
	case HeaderReplay:
		return hReplay
	case HeaderStatus:
		return hStatus
	case HeaderRetryAfter:
		return hRetryAfter
	case HeaderState:
		return hState
	case HeaderRequest:
		return hRequest
	}
	return 0
}
