package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
)

// contestant is a request about the contested task.
type contestant struct {
	kind string // replace, keep or cancel
	due  int64
}

// verdict is what it was answered.
type verdict struct {
	state schemas.State
	due   int64
}

// contested is what the task is: pending or cancelled, and when it is or was due; 0: nobody knows it.
type contested struct {
	pending bool
	due     int64
}

// contest says in which states each answer may be given.
var contest = porcupine.Model{
	Step: func(before, input, output any) (bool, any) {
		s, in, out := before.(contested), input.(contestant), output.(verdict)
		switch {
		case in.kind == "cancel" && s.due == 0:
			return out.state == schemas.StateNotFound, s
		case in.kind == "cancel":
			return out == verdict{schemas.StateCancelled, s.due}, contested{due: s.due}
		case in.kind == "keep" && s.pending:
			return out == verdict{schemas.StateKept, s.due}, s
		}
		return out == verdict{schemas.StateScheduled, in.due}, contested{pending: true, due: in.due}
	},
}

// contestRound is how many requests are explained at a time.
const contestRound = 400

// unexplained lists the end of the longest order that explains answers, and the others' begin.
func unexplained(model porcupine.Model, all []porcupine.Operation, orders [][]porcupine.Operation) string {
	order := slices.MaxFunc(orders, func(a, b []porcupine.Operation) int { return len(a) - len(b) })
	out, state := "", model.Init()
	say := func(op porcupine.Operation) string {
		return fmt.Sprintf("%d asked %+v from %v to %v, answer %+v", op.ClientId, op.Input, time.Duration(op.Call), time.Duration(op.Return), op.Output)
	}
	for i, op := range order {
		if _, state = model.Step(state, op.Input, op.Output); i > len(order)-12 {
			out += say(op) + fmt.Sprintf(" -> %+v\n", state)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(all), func(op porcupine.Operation) bool {
		return slices.ContainsFunc(order, func(o porcupine.Operation) bool { return o.ClientId == op.ClientId && o.Call == op.Call })
	})
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, op := range rest[:min(len(rest), 12)] {
		out += "not explained: " + say(op) + "\n"
	}
	return out
}

// TestAContestedTaskWhileItsTargetMoves: clients of all intake partitions schedule, replace, keep and cancel one task, each with one
// request at a time, while its target moves to and fro and processes are killed. Each request has one answer, there is one order of
// all that explains the answers, and tasks of one key arrive in their order.
func TestAContestedTaskWhileItsTargetMoves(t *testing.T) {
	c := oneDatabase(t, usualSlots)
	c.withSecond()
	const clients = 8
	n, target := int64(clusterNumber(t, "NOTYET_CONTEST", 800)), c.name+".contest"
	c.judging(1, target)
	scanners := []*proc{c.spawn("scanner1", "scanner"), c.spawn("scanner2", "scanner")}
	c.spawn("dispatcher1", "dispatcher")
	c.warm()
	far := time.Now().Add(24 * time.Hour).UnixMilli()
	producer, err := kafka.New(c.kafka, c.log, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(producer.Close)

	var mu sync.Mutex
	answers, copies := map[string]chan verdict{}, map[string]int{} // by the request's place
	of := func(place string) chan verdict {
		mu.Lock()
		defer mu.Unlock()
		if answers[place] == nil {
			answers[place] = make(chan verdict, 1)
		}
		return answers[place]
	}
	over := make(chan struct{})
	end := sync.OnceFunc(func() { close(over) })
	t.Cleanup(end)
	var work, listening sync.WaitGroup
	listening.Go(func() {
		c.read(c.reader([]string{c.results}), time.Hour, func(r *kgo.Record) bool {
			e, err := schemas.DecodeEvent(r)
			if err == nil && e.Topic == target && e.ID == "contested" {
				copies[fmt.Sprint(e.Request, " ", e.State, e.Due)]++
				select {
				case of(e.Request) <- verdict{e.State, e.Due}:
				default: // a copy, or another answer, which is counted
				}
			}
			return e.ID == "over"
		})
	})
	begin := time.Now()
	ask := func(client int, in contestant) (op porcupine.Operation) {
		r := request(c.intake, target, schemas.HeaderID, "contested", schemas.HeaderEvents, "all", schemas.HeaderAt, strconv.FormatInt(in.due, 10), schemas.HeaderIfExists, in.kind)
		if in.kind == "cancel" {
			r = request(c.intake, target, schemas.HeaderID, "contested", schemas.HeaderOp, "cancel")
		}
		r = keyed(r, "contested", "v")
		r.Partition = int32(client % 8)
		op = porcupine.Operation{ClientId: client, Input: in, Call: int64(time.Since(begin))}
		if err := producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Error(err)
			return op
		}
		place := fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)
		select {
		case op.Output = <-of(place):
		case <-time.After(2 * time.Minute):
			t.Error("no answer to ", place)
		}
		op.Return = int64(time.Since(begin))
		return op
	}
	moves, kills := 0, 0
	var moving sync.WaitGroup
	moving.Go(func() {
		for to := 1; ; {
			select {
			case <-over:
				return
			default:
			}
			if n > 10_000 { // or most of the time goes into moves
				time.Sleep(rand.N(4 * time.Second))
			}
			if !c.spawn("mover", "shards", "move", target, strconv.Itoa(to), "--wait").wait() {
				continue
			}
			if moves, to = moves+1, 1-to; moves%10 == 5 {
				scanners[kills%2].kill()
				scanners[kills%2] = c.spawn(scanners[kills%2].name, "scanner")
				kills++
			}
		}
	})
	ordered := 0
	moving.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ; ordered++ {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			c.client.Produce(t.Context(), keyed(request(c.intake, target, schemas.HeaderDelay, "1s", schemas.HeaderID, "ordered-"+strconv.Itoa(ordered)), "ordered", strconv.Itoa(ordered)), nil)
		}
	})
	// After each round comes a request of one client alone, so that the state is known from which the next one begins.
	for asked, known := int64(0), (contested{}); asked < n && !t.Failed(); asked++ {
		history := make([][]porcupine.Operation, clients)
		var left atomic.Int64
		left.Store(min(contestRound, n-asked) - 1)
		for i := range clients {
			work.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(asked)))
				for k := left.Add(-1); k >= 0 && !t.Failed(); k = left.Add(-1) {
					history[i] = append(history[i], ask(i, contestant{[]string{"replace", "keep", "cancel"}[rng.IntN(3)], far + asked + k}))
				}
			})
		}
		work.Wait()
		all := slices.Concat(history...)
		asked += int64(len(all))
		all = append(all, ask(int(asked%clients), contestant{"replace", far + asked}))
		require.False(t, t.Failed())
		model := contest
		model.Init = func() any { return known }
		answer, info := porcupine.CheckOperationsVerbose(model, all, 5*time.Minute)
		require.Equal(t, porcupine.Ok, answer, "no order explains the answers:\n%s", unexplained(model, all, info.PartialLinearizationsOperations()[0]))
		known = contested{pending: true, due: far + asked}
	}
	took := time.Since(begin)
	end()
	moving.Wait()
	c.publish(keyed(request(c.intake, target, schemas.HeaderID, "over", schemas.HeaderDelay, "1h", schemas.HeaderEvents, "all"), "over", ""))
	listening.Wait()

	t.Logf("%d requests in %v, %d moves, %d scanners killed", n, took.Round(time.Second), moves, kills)
	require.Positive(t, moves)
	require.Len(t, copies, int(n), "two answers to one request")
	seen, last := map[string]bool{}, -1
	c.read(c.reader([]string{target}), time.Minute, func(r *kgo.Record) bool {
		i, err := strconv.Atoi(string(r.Value))
		require.NoError(t, err)
		if !seen[string(r.Value)] {
			require.Greater(t, i, last, "order of the key")
			last = i
		}
		seen[string(r.Value)] = true
		return len(seen) == ordered
	})
}
