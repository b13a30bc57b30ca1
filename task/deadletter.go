package task

import "fmt"

// DeadLetter is a task or a request that notyet has given up on, with the cause.
type DeadLetter struct {
	ID         int64  `json:"id"`
	Seq        int64  `json:"-" cbor:"seq"`
	Kind       string `json:"kind"`
	Topic      string `json:"topic"` // the target; of a rejected request that may not speak for one, its intake
	TaskID     string `json:"task_id"`
	Due        int64  `json:"due"`
	Attempt    int    `json:"attempt"`
	Replay     int    `json:"replay"`
	Reason     string `json:"reason"`
	DiedAt     int64  `json:"died_at"`
	ReplayedAt int64  `json:"replayed_at"` // 0: not replayed
	ReplayedBy string `json:"replayed_by,omitempty"`
	Body       []byte `json:"-" cbor:"body"` // schemas.EncodeBody
}

// Exhausted is why a task died after its last attempt.
func Exhausted(attempts int, last string) string {
	return fmt.Sprintf("attempts exhausted (%d); the last: %s", attempts, last)
}

// RefusedByKafka is why a task died that its target topic refuses for good.
func RefusedByKafka(why string) string { return "kafka refused it: " + why }

// NewDeadLetter returns the letter of a task that died now (Unix ms).
func NewDeadLetter(t Task, kind, reason string, now int64) *DeadLetter {
	return &DeadLetter{
		Seq: t.Seq, Kind: kind, Topic: t.Topic, TaskID: t.ID, Due: t.Due, Attempt: t.Attempt, Replay: t.Replay,
		Reason: reason, DiedAt: now, Body: t.Body,
	}
}
