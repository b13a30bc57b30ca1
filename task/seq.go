package task

// A task's seq names the intake record that made it: its source and its offset there.
// The offset has the low 48 bits. Sources are at most 1<<15 - 1, so a seq is never negative.
const offsetBits = 48

// Seq returns the seq of the record at an offset of a source.
func Seq(source int, offset int64) int64 { return int64(source)<<offsetBits | offset }

// SplitSeq is the inverse of Seq.
func SplitSeq(seq int64) (source int, offset int64) {
	return int(seq >> offsetBits), seq & (1<<offsetBits - 1)
}

// replayShift leaves room for sixteen million attempts between two replays of a task.
const replayShift = 24

// SendNumber numbers an attempt (from 1) among all attempts that a task ever sees. A replay counts its
// attempts from 1 again, and none of them may be taken for one that was made before it.
func SendNumber(replay, attempt int) int32 { return int32(replay)<<replayShift + int32(attempt) }

// SplitSendNumber is the inverse of SendNumber.
func SplitSendNumber(number int32) (replay, attempt int) {
	return int(number >> replayShift), int(number & (1<<replayShift - 1))
}
