package flight

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/notyet/notyet/task"
)

// queued makes n tasks of a lane, numbered on from first.
func queued(topic string, class task.Class, first, n int) []*Task {
	out := make([]*Task, n)
	for i := range out {
		out[i] = &Task{slot: &ownedSlot{}, seq: int64(first + i), lane: task.LaneKey{}.Lane(topic, class)}
	}
	return out
}

func queueOf(tasks ...[]*Task) *fetchQueue {
	q := newFetchQueue(nil)
	for _, run := range tasks {
		for _, t := range run {
			q.push(t)
		}
	}
	return &q
}

// classes counts tasks by class.
func classes(tasks []*Task) (n [task.Classes]int) {
	for _, t := range tasks {
		n[t.lane.Class()]++
	}
	return n
}

func TestTargetsTakeTurns(t *testing.T) {
	q := queueOf(queued("flood", task.ClassNormal, 0, 5000), queued("quiet", task.ClassNormal, 10_000, 3), queued("other", task.ClassRetried, 20_000, 40))
	got := q.take(2*128+3+40+1, never)
	var turns []string
	for _, run := range slices.Collect(chunksByTarget(got)) {
		turns = append(turns, fmt.Sprintf("%d+%d", run[0].seq, len(run)))
	}
	// The flood has 128 a turn, the others what they have, up to 16 of the retried ones.
	require.Equal(t, []string{"0+128", "10000+3", "20000+16", "128+128", "20016+16", "256+9"}, turns)
	require.Equal(t, 5000+3+40-len(got), q.size)
	require.Equal(t, int64(20_032), q.take(1, never)[0].seq, "a turn that was cut short is over")
}

// chunksByTarget yields runs of tasks of one target.
func chunksByTarget(tasks []*Task) func(func([]*Task) bool) {
	return func(yield func([]*Task) bool) {
		for len(tasks) > 0 {
			n := 1
			for n < len(tasks) && tasks[n].lane.Target() == tasks[0].lane.Target() {
				n++
			}
			if !yield(tasks[:n]) {
				return
			}
			tasks = tasks[n:]
		}
	}
}

// A key's tasks go in the order of time, though other intakes have some of them, and though the intakes were not known at first.
func TestTenantsOfOneTargetKeepItsOrder(t *testing.T) {
	var known Tenants
	b := newBacklog(&known)
	lane := task.LaneKey{}.Lane("orders", task.ClassNormal)
	at := func(source int, ats ...int64) (tasks []*Task) {
		for _, ms := range ats {
			tasks = append(tasks, &Task{slot: &ownedSlot{}, seq: task.Seq(source, ms), at: ms, lane: lane})
		}
		return tasks
	}
	b.push(at(7, 10, 30, 50, 70))
	known.Learn(map[int]string{7: "intake", 8: "another"})
	b.push(at(7, 20, 60, 80))
	b.push(at(8, 40))
	var got []int64
	for range 4 {
		tasks, _ := b.take(2, never)
		for _, t := range tasks {
			got = append(got, t.at)
		}
	}
	require.Equal(t, []int64{10, 20, 30, 40, 50, 60, 70, 80}, got)
	require.Empty(t, b.homes)
	b.push(at(8, 90))
	require.Equal(t, map[uint32]string{lane.Target(): "another"}, b.homes)
}

// A target whose intake was not known, at a start or because a timer's run came first, does not wait for all others of that kind: it
// takes its intake's turns once that is known, and its tasks keep their order.
func TestATargetMovesToItsIntake(t *testing.T) {
	const quiet, noisy = 7, 8
	for name, c := range map[string]struct {
		read       int
		runs, more bool
	}{
		"at a start": {}, "at a start, and some were read": {read: 5}, "at a start, and more come": {read: 5, more: true},
		"runs of timers": {runs: true, more: true}, "runs of timers, and some were read": {read: 5, runs: true, more: true},
	} {
		t.Run(name, func(t *testing.T) {
			var known Tenants
			b := newBacklog(&known)
			push := func(source int, topic string, ats ...int64) {
				for _, at := range ats {
					b.push([]*Task{{seq: task.Seq(source, at), at: at, lane: task.LaneKey{}.Lane(topic, task.ClassNormal)}})
				}
			}
			before := func(source int) int {
				if c.runs {
					return task.RunSource
				}
				return source
			}
			for i := range 1000 {
				push(before(noisy), fmt.Sprint("noisy.", i), 1, 2, 3)
			}
			push(before(quiet), "quiet", 10, 20, 30)
			read, _ := b.take(c.read, never)
			require.Len(t, read, c.read)
			known.Learn(map[int]string{quiet: "quiet", noisy: "noisy"})
			want := []int64{10, 20, 30}
			if c.more {
				push(quiet, "quiet", 15, 40)
				want = []int64{10, 15, 20, 30, 40}
			}
			tasks, _ := b.take(10, never)
			require.Len(t, tasks, 10)
			tasks = slices.DeleteFunc(tasks, func(one *Task) bool { return one.at < 10 })
			require.Equal(t, want, times(tasks))
			for left := b.size(); left > 0; left-- {
				one, _ := b.take(1, never)
				require.Len(t, one, 1)
			}
			require.Empty(t, b.queues)
			require.Empty(t, b.homes)
		})
	}
}

// Whoever sends, and whenever intakes come to be known: nothing is lost or doubled, as much is taken as is due, and each target keeps
// its order.
func TestBacklogHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var known Tenants
		b := newBacklog(&known)
		intakes, model, size, n := map[int]string{}, map[string][]*Task{}, 0, int64(0)
		topics := map[uint32]string{}
		t.Repeat(map[string]func(*rapid.T){
			"learn": func(t *rapid.T) {
				intakes = maps.Clone(intakes)
				source := rapid.IntRange(7, 9).Draw(t, "source")
				intakes[source] = fmt.Sprint("intake ", source%2)
				known.Learn(intakes)
			},
			"push": func(t *rapid.T) {
				topic := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "topic")
				lane := task.LaneKey{}.Lane(topic, task.ClassNormal)
				topics[lane.Target()] = topic
				source := rapid.SampledFrom([]int{7, 8, 9, task.RunSource}).Draw(t, "source")
				at := rapid.Int64Range(0, 3).Draw(t, "at")
				for range rapid.IntRange(1, 200).Draw(t, "n") {
					n++
					one := &Task{seq: task.Seq(source, n), order: n, lane: lane, at: at}
					b.push([]*Task{one})
					model[topic] = append(model[topic], one)
					size++
				}
				slices.SortStableFunc(model[topic], func(a, b *Task) int { return int(a.at - b.at) })
			},
			"take": func(t *rapid.T) {
				n, until := rapid.IntRange(0, 500).Draw(t, "n"), rapid.Int64Range(0, 3).Draw(t, "until")
				got, _ := b.take(n, until)
				require.Len(t, got, min(n, dueBy(model, until)))
				for _, one := range got {
					topic := topics[one.lane.Target()]
					require.Equal(t, model[topic][0], one)
					model[topic] = model[topic][1:]
				}
				size -= len(got)
			},
			"": func(t *rapid.T) {
				require.Equal(t, size, b.size())
				for target, topic := range topics {
					_, queued := b.homes[target]
					require.Equal(t, len(model[topic]) > 0, queued, topic)
				}
			},
		})
	})
}

func TestClassesShareByWeight(t *testing.T) {
	all := [][]*Task{}
	for class := range task.Class(task.Classes) { // the least urgent first
		all = append(all, queued("t", task.Classes-1-class, int(class)*10_000, 3000))
	}
	q := queueOf(all...)
	turn := q.take(256+128+32+16, never)
	require.Equal(t, [task.Classes]int{256, 128, 32, 16}, classes(turn))
	require.True(t, slices.IsSortedFunc(turn, func(a, b *Task) int { return int(a.lane.Class()) - int(b.lane.Class()) }), "in a turn the most urgent go first")
	require.Equal(t, [task.Classes]int{2560, 1280, 320, 160}, classes(q.take(4320, never)))
}

// Under load memory is full, and every read takes the few places that have just become free: the classes share these too.
func TestNoClassStarvesWhenRoomIsScarce(t *testing.T) {
	for _, room := range []int{1, 7, 100, 256} {
		var all [][]*Task
		for class := range task.Class(task.Classes) {
			all = append(all, queued("t", class, int(class)*10_000, 3000))
		}
		q := queueOf(all...)
		var got []*Task
		for len(got) < 4*(256+128+32+16) {
			got = append(got, q.take(room, never)...)
		}
		require.Equal(t, [task.Classes]int{4 * 256, 4 * 128, 4 * 32, 4 * 16}, classes(got[:4*432]), "with room for %d", room)
	}
}

func TestUnknownClassesAreRetriedWork(t *testing.T) {
	q := queueOf(queued("t", 9, 0, 100), queued("t", task.ClassLow, 1000, 1))
	got := q.take(17, never)
	require.Equal(t, int64(1000), got[0].seq)
	require.Len(t, got, 17)
}

func TestEmptyQueueForgetsItsTargets(t *testing.T) {
	q := queueOf(queued("a", task.ClassHigh, 0, 2), queued("b", task.ClassHigh, 10, 2))
	require.Empty(t, q.take(0, never))
	require.Len(t, q.take(100, never), 4)
	require.Empty(t, q.targets)
	require.Empty(t, q.take(100, never))
}

// An idle dispatcher would otherwise ask a thousand times a second.
func TestAnEmptyBacklogRests(t *testing.T) {
	b := newBacklog(&Tenants{})
	for _, tasks := range [][]*Task{nil, timed(10)} {
		b.push(tasks)
		for _, until := range []int64{never, 5000} {
			_, _ = b.take(len(tasks), until)
			_, wait := b.take(1, until)
			require.Equal(t, time.Second, wait)
		}
	}
}

// Whatever comes and goes: nothing is lost or doubled, as much is taken as is due, and each lane keeps its order.
func TestFetchQueueHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newFetchQueue(nil)
		model := map[task.Lane][]*Task{} // in order
		size, seq := 0, int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				lane := task.LaneKey{}.Lane(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "topic"), task.Class(rapid.IntRange(0, task.Classes-1).Draw(t, "class")))
				at := rapid.Int64Range(0, 3).Draw(t, "at")
				for range rapid.IntRange(1, 300).Draw(t, "n") {
					seq++
					one := &Task{seq: seq, lane: lane, at: at}
					q.push(one)
					model[lane] = append(model[lane], one)
					size++
				}
				slices.SortStableFunc(model[lane], func(a, b *Task) int { return int(a.at - b.at) })
			},
			"take": func(t *rapid.T) {
				n, until := rapid.IntRange(0, 500).Draw(t, "n"), rapid.Int64Range(0, 3).Draw(t, "until")
				got := q.take(n, until)
				require.Len(t, got, min(n, dueBy(model, until)))
				for _, one := range got {
					require.LessOrEqual(t, one.at, until)
					require.NotEmpty(t, model[one.lane])
					require.Equal(t, model[one.lane][0], one)
					model[one.lane] = model[one.lane][1:]
				}
				size -= len(got)
			},
			"": func(t *rapid.T) {
				require.Equal(t, size, q.size)
				first := int64(never)
				for _, tasks := range model {
					if len(tasks) > 0 {
						first = min(first, tasks[0].at)
					}
				}
				require.LessOrEqual(t, q.first(), first, "nobody sleeps past it")
			},
		})
	})
}

// ahead makes one task of each of n targets.
func ahead(n int, at int64) []*Task {
	out := make([]*Task, n)
	for i := range out {
		out[i] = queued("t"+strconv.Itoa(i), task.ClassNormal, i, 1)[0]
		out[i].at = at
	}
	return out
}

// Each task may have a target of its own. Those that are due later are not looked at, and what one take costs is bounded when all become due.
func TestManyTargets(t *testing.T) {
	const many = 5 * targetsAtOnce
	q := queueOf(ahead(many, 1000), timed(10, 20))
	require.Equal(t, []int64{10, 20}, times(q.take(900, 999)))
	require.Zero(t, len(q.ring))
	require.Equal(t, int64(1000), q.first())
	require.Len(t, q.take(900, 1000), 900)
	require.LessOrEqual(t, len(q.ring), targetsAtOnce)
	for left := many - 900; left > 0; left -= 900 {
		require.Len(t, q.take(900, 1000), min(900, left))
	}
	require.Zero(t, q.size)
}

func BenchmarkTakeBesideManyTargets(b *testing.B) {
	q := queueOf(ahead(1_000_000, 1000))
	for b.Loop() {
		for _, one := range timed(10, 20) {
			q.push(one)
		}
		if len(q.take(900, 999)) != 2 {
			b.Fatal("not taken")
		}
		_ = q.first()
	}
}

// timed makes tasks of one lane that are to be released at those times.
func timed(at ...int64) []*Task {
	out := queued("t", task.ClassNormal, 0, len(at))
	for i, t := range out {
		t.at = at[i]
	}
	return out
}

func times(tasks []*Task) []int64 {
	out := make([]int64, len(tasks))
	for i, t := range tasks {
		out[i] = t.at
	}
	return out
}

// A long look-ahead has brought tasks of the next seconds; then come some that are due now.
func TestWhatIsDueIsReadFirst(t *testing.T) {
	q := queueOf(timed(10, 3000, 3001), timed(20, 21))
	require.Equal(t, []int64{10, 20, 21, 3000, 3001}, times(q.take(10, never)), "by their time, what has waited too long included")
}

// What was claimed ahead and has come to be due is not overtaken by what was claimed late.
func TestTheLastRoomIsForWhatIsDue(t *testing.T) {
	q := queueOf(timed(10, 3000), timed(20, 21))
	require.Equal(t, int64(10), q.first())
	require.Equal(t, []int64{10, 20}, times(q.take(10, 20)))
	require.Equal(t, []int64{21}, times(q.take(10, 30)))
	require.Empty(t, q.take(10, 30))
	require.Equal(t, 1, q.size)
	require.Equal(t, int64(3000), q.first())
	require.Equal(t, []int64{3000}, times(q.take(10, never)))
	require.Equal(t, int64(never), q.first())
}

// A target whose weights are used up, and one with nothing due, do not keep the others from their turns.
func TestTargetsWithoutDueTasksArePassedBy(t *testing.T) {
	late := queued("late", task.ClassNormal, 0, 3)
	due := queued("due", task.ClassNormal, 100, 300)
	for _, task := range late {
		task.at = 1000
	}
	q := queueOf(late, due)
	require.Len(t, q.take(128, 10), 128)
	require.Len(t, q.take(500, 10), 172)
	require.Empty(t, q.take(500, 10))
	require.Len(t, q.take(500, 1000), 3)
}

func dueBy[K comparable](model map[K][]*Task, until int64) (n int) {
	for _, tasks := range model {
		for _, one := range tasks {
			if one.at <= until {
				n++
			}
		}
	}
	return n
}
