package e2e

import (
	"database/sql"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

// TestMergeLosesNoUpdate sends many updates a second to a few ids; half of the ids sum them and
// half append them. However many deliveries result, they contain every update exactly once.
// NOTYET_CLUSTER_TASKS sets the number of updates; published figures use 300000 at 10000/s.
func TestMergeLosesNoUpdate(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		const ids, delay, window = 20, time.Second, 3 * time.Second
		updates := clusterTasks(t, 20_000)
		rate := 4000
		if updates >= 100_000 {
			rate = 10_000
		}
		target := s.name + ".merged"
		s.judging(4, target)
		s.scanner()
		s.dispatcher("one")
		before := s.writes()
		begin := time.Now()
		for i := range updates {
			if i%100 == 0 {
				time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))))
			}
			id := strconv.Itoa(i % ids)
			mode, value := "sum", `{"n":1,"in":{"bytes":`+strconv.Itoa(i)+`}}`
			if i%ids%2 == 1 {
				mode, value = "append", strconv.Itoa(i)
			}
			r := request(s.intake, target, schemas.HeaderID, id, schemas.HeaderDelay, delay.String(), schemas.HeaderIfExists, "merge", schemas.HeaderMerge, mode,
				schemas.HeaderMaxWait, window.String())
			s.client.Produce(t.Context(), keyed(r, id, value), nil)
		}
		require.NoError(t, s.client.Flush(t.Context()))
		span := time.Since(begin)

		accepted := s.acceptedAt(updates)
		var n, bytes int64
		appended := map[int]int{}
		deliveries := 0
		s.read(s.reader([]string{target}), span+3*time.Minute, func(r *kgo.Record) bool {
			deliveries++
			due, err := strconv.ParseInt(recordtest.Header(r, schemas.HeaderDue), 10, 64)
			require.NoError(t, err)
			require.GreaterOrEqual(t, r.Timestamp.UnixMilli(), due, "early")
			number, err := strconv.Atoi(recordtest.Header(r, schemas.HeaderID))
			require.NoError(t, err)
			if number%2 == 1 {
				var list []int
				require.NoError(t, json.Unmarshal(r.Value, &list))
				for _, v := range list {
					appended[v]++
				}
				// So that an id has one delivery per window as long as its updates are stored in
				// time.
				windowEnds := accepted[list[0]].Add(window)
				quiet := accepted[list[len(list)-1]].Add(delay)
				require.Equal(t, min(windowEnds.UnixMilli(), quiet.UnixMilli()), due, "%d updates from %d", len(list), list[0])
			} else {
				var sum struct {
					N  int64
					In struct{ Bytes int64 }
				}
				require.NoError(t, json.Unmarshal(r.Value, &sum))
				n += sum.N
				bytes += sum.In.Bytes
			}
			return n == int64(updates/2) && len(appended) == updates/2
		})
		want := int64(0)
		for i := range updates {
			if i%ids%2 == 0 {
				want += int64(i)
			} else {
				require.Equal(t, 1, appended[i], "update %d", i)
			}
		}
		require.Equal(t, want, bytes)
		require.Less(t, deliveries, updates/20, "updates were hardly merged at all")
		windows := int((span+window-1)/window) + 1 // the last updates make one more
		t.Logf("%d updates in %v to %d ids: %d deliveries, %.1f of an id in %d windows, sums and lists exact", updates, span.Round(time.Millisecond), ids, deliveries, float64(deliveries)/ids, windows)
		s.logWrites(before, updates)
	})
}

// acceptedAt reads when the intake received each appended update, by its number.
func (s *stack) acceptedAt(updates int) []time.Time {
	out := make([]time.Time, updates)
	left := updates
	s.read(s.reader([]string{s.intake}), 3*time.Minute, func(r *kgo.Record) bool {
		left--
		if recordtest.Header(r, schemas.HeaderMerge) == "append" {
			i, err := strconv.Atoi(string(r.Value))
			require.NoError(s.t, err)
			out[i] = r.Timestamp
		}
		return left == 0
	})
	return out
}

// writeCounters are the database server's own: statements, changed rows (Handler), and waits for
// the disk.
var writeCounters = []string{
	"Com_insert", "Com_update", "Com_delete", "Com_commit", "Handler_write", "Handler_update", "Handler_delete", "Innodb_data_fsyncs",
}

// writes reads the counters. They count the whole server, including other users. SQLite has none.
func (s *stack) writes() map[string]int64 {
	if !s.real {
		return nil
	}
	db, err := sql.Open("mysql", s.dsn)
	require.NoError(s.t, err)
	defer db.Close()
	out := map[string]int64{}
	for _, name := range writeCounters {
		var n int64
		require.NoError(s.t, db.QueryRowContext(s.t.Context(), "SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&name, &n))
		out[name] = n
	}
	return out
}

func (s *stack) logWrites(before map[string]int64, updates int) {
	if before == nil {
		return
	}
	after := s.writes()
	for _, name := range writeCounters {
		n := after[name] - before[name]
		s.t.Logf("%-21s %8d, %.4f per update", name, n, float64(n)/float64(updates))
	}
}
