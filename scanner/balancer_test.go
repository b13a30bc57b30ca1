package scanner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// balanced is how many partitions of one intake, and of another one with as many, members get that are well, or not.
func balanced(t *testing.T, owned map[string][]int32, members map[string]ability) map[string][]int32 {
	t.Helper()
	var joined []kmsg.JoinGroupResponseMember
	for _, id := range []string{"a", "b", "c"} {
		how, there := members[id]
		if !there {
			continue
		}
		b := balancer{kgo.CooperativeStickyBalancer(), func() ability { return how }}
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID, m.ProtocolMetadata = id, b.JoinGroupMetadata([]string{"intake"}, map[string][]int32{"intake": owned[id]}, 3)
		joined = append(joined, m)
	}
	leader := balancer{kgo.CooperativeStickyBalancer(), nil}
	shares, topics, err := leader.MemberBalancer(joined)
	require.NoError(t, err)
	require.Contains(t, topics, "intake")
	plan, err := shares.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{"intake": 6})
	require.NoError(t, err)
	out := map[string][]int32{}
	for _, a := range plan.IntoSyncAssignment() {
		got, err := leader.ParseSyncAssignment(a.MemberAssignment)
		require.NoError(t, err)
		out[a.MemberID] = got["intake"]
	}
	require.Len(t, out, len(members), "each member hears what it has")
	return out
}

func TestPartitionsGoToScannersThatCanStore(t *testing.T) {
	for name, c := range map[string]struct {
		members map[string]ability
		want    map[string]int
	}{
		"all work":             {map[string]ability{"a": works, "b": works, "c": works}, map[string]int{"a": 2, "b": 2, "c": 2}},
		"one fails":            {map[string]ability{"a": fails, "b": works, "c": works}, map[string]int{"a": 0, "b": 3, "c": 3}},
		"one rests":            {map[string]ability{"a": works, "b": rests, "c": works}, map[string]int{"a": 3, "b": 0, "c": 3}},
		"one works":            {map[string]ability{"a": fails, "b": rests, "c": works}, map[string]int{"a": 0, "b": 0, "c": 6}},
		"all fail":             {map[string]ability{"a": fails, "b": fails, "c": fails}, map[string]int{"a": 2, "b": 2, "c": 2}},
		"nobody works":         {map[string]ability{"a": fails, "b": rests, "c": rests}, map[string]int{"a": 0, "b": 3, "c": 3}},
		"one falters":          {map[string]ability{"a": falters, "b": works, "c": fails}, map[string]int{"a": 3, "b": 3, "c": 0}},
		"nobody is sure":       {map[string]ability{"a": falters, "b": falters, "c": fails}, map[string]int{"a": 2, "b": 2, "c": 2}},
		"one that fails alone": {map[string]ability{"a": fails}, map[string]int{"a": 6}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]int{}
			for id, parts := range balanced(t, nil, c.members) {
				got[id] = len(parts)
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestPartitionsOfAScannerThatFailsAreGivenUpFirst(t *testing.T) {
	owned := map[string][]int32{"a": {0, 1}, "b": {2, 3}, "c": {4, 5}}
	all := map[string]ability{"a": fails, "b": works, "c": works}
	require.Equal(t, map[string][]int32{"a": nil, "b": {2, 3}, "c": {4, 5}}, balanced(t, owned, all))
	owned["a"] = nil
	got := balanced(t, owned, all)
	require.Empty(t, got["a"])
	require.Subset(t, got["b"], owned["b"])
	require.Subset(t, got["c"], owned["c"])
	require.Len(t, got["b"], 3)

	owned = map[string][]int32{"a": {0, 1}, "b": {2, 3}, "c": {4, 5}}
	require.Equal(t, owned, balanced(t, owned, map[string]ability{"a": fails, "b": fails, "c": fails}), "what is away for all moves nothing")
}

// Versions without a balancer of their own read over what they do not know.
func TestAPlainBalancerReadsWhatMembersSay(t *testing.T) {
	plain := kgo.CooperativeStickyBalancer()
	for _, how := range []ability{works, fails} {
		said := balancer{plain, func() ability { return how }}.JoinGroupMetadata([]string{"intake"}, map[string][]int32{"intake": {1}}, 3)
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID, m.ProtocolMetadata = "a", said
		shares, _, err := plain.MemberBalancer([]kmsg.JoinGroupResponseMember{m})
		require.NoError(t, err)
		plan, err := shares.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{"intake": 2})
		require.NoError(t, err)
		got, err := plain.ParseSyncAssignment(plan.IntoSyncAssignment()[0].MemberAssignment)
		require.NoError(t, err)
		require.Equal(t, map[string][]int32{"intake": {0, 1}}, got)
	}
}
