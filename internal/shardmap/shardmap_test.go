package shardmap

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

var part = Partition{Topic: "notyet.intake", Partition: 3}

func cut(at int64) map[Partition]int64 { return map[Partition]int64{part: at} }

func TestARuleHoldsFromItsCutOn(t *testing.T) {
	m := Map{Rules: []Rule{
		{N: 1, Pattern: "orders.*", Former: 0, Shard: 1, Held: true, Followed: true, Cuts: cut(10)},
		{N: 2, Pattern: "orders.eu", Former: 1, Shard: 2, Held: true, Followed: true, Cuts: cut(20)},
		{N: 3, Pattern: "*", Former: 2, Shard: 0, Held: true, Cuts: cut(30)},
	}}
	for offset, want := range map[int64]int{9: 0, 10: 1, 19: 1, 20: 2, 29: 2, 30: 0} {
		shard, decided := m.At("orders.eu", part, offset)
		require.True(t, decided)
		require.Equal(t, want, shard, offset)
	}
	other, decided := m.At("orders.us", part, 40)
	require.Equal(t, []any{1, true}, []any{other, decided}, "the third rule is about the targets of database 2")
	first, _ := m.At("orders.us", Partition{Topic: "new"}, 0)
	require.Equal(t, 1, first, "a partition that nobody had read has no records from before")
	none, _ := m.At("", part, 40)
	require.Equal(t, Home, none)
	require.Equal(t, []int{0, 2, 1}, m.Homes("orders.eu"))
	require.Equal(t, []int{1, 0}, m.Homes("orders.us"))
	require.Equal(t, []int{0}, m.Homes("bills"))
}

func TestAnAnnouncedRuleLeavesOpenWhoseItsRecordsAre(t *testing.T) {
	m := Map{Rules: []Rule{{N: 1, Pattern: "orders", Former: 0, Shard: 1}}}
	_, decided := m.At("orders", part, 0)
	require.False(t, decided)
	_, decided = m.At("bills", part, 0)
	require.True(t, decided)
	require.Equal(t, 0, m.Home("orders"))
	require.Equal(t, 1, m.Announced().N)
}

func TestParts(t *testing.T) {
	counts := map[int]int{}
	for i := range 3000 {
		target := fmt.Sprint("orders.", i)
		in := 0
		for p := 1; p <= 3; p++ {
			if (Rule{Pattern: "orders.*", Part: p, Parts: 3}).Matches(target) {
				counts[p]++
				in++
			}
		}
		require.Equal(t, 1, in, target)
	}
	for p := 1; p <= 3; p++ {
		require.InDelta(t, 1000, counts[p], 150)
	}
}

func TestCheck(t *testing.T) {
	for _, r := range []Rule{{Pattern: "orders"}, {Pattern: "*", Part: 1, Parts: 1}, {Pattern: "https://*.shop.example", Part: 3, Parts: 3}} {
		require.NoError(t, r.Check())
	}
	for _, r := range []Rule{{}, {Pattern: "["}, {Pattern: "a", Part: 1}, {Pattern: "a", Parts: 2}, {Pattern: "a", Part: 3, Parts: 2}, {Pattern: "a", Part: -1, Parts: 2}, {Pattern: "a", Part: 1, Parts: 2000}} {
		require.Error(t, r.Check(), r)
	}
	require.Equal(t, "orders", Rule{Pattern: "orders"}.Literal())
	require.Empty(t, Rule{Pattern: "orders.*"}.Literal())
}

// A move of targets makes a rule for each database that may have some of them, and none where nothing would change.
func TestPlan(t *testing.T) {
	to := func(pattern string, shard int) Rule { return Rule{Pattern: pattern, Shard: shard} }
	formers := func(m Map, r Rule) (out []int) {
		for _, r := range m.Plan(r) {
			out = append(out, r.Former)
		}
		return out
	}
	m := Map{}
	require.Empty(t, formers(m, to("orders", 0)))
	require.Equal(t, []int{0}, formers(m, to("orders", 2)))
	m.Rules = []Rule{{N: 1, Pattern: "orders.*", Former: 0, Shard: 2, Held: true}, {N: 2, Pattern: "bills", Former: 0, Shard: 3}}
	require.Equal(t, []int{2}, formers(m, to("orders.eu", 0)), "of one target only its home")
	require.Equal(t, []int{0, 2}, formers(m, to("*", 1)), "an announced rule has moved nothing")
	require.Empty(t, formers(m, to("orders.*", 2)), "they are there")
	require.Equal(t, []int{0}, formers(m, to("orders.e*", 2)))
	m.Rules = append(m.Rules, Rule{N: 3, Pattern: "orders.eu", Former: 2, Shard: 0, Held: true})
	require.Equal(t, []int{0}, formers(m, to("orders.*", 2)), "one has gone back")
	require.Equal(t, 2, m.InForce())
	require.True(t, to("*", 1).Matches("https://shop.example:8443"), "all, also origins")
	require.False(t, to("https:*", 1).Matches("https://shop.example:8443"))
}

// A database that has left is nobody's home, nor a former one, until another one has its number.
func TestARemoval(t *testing.T) {
	rule := func(pattern string, former, shard int) Rule {
		return Rule{Pattern: pattern, Former: former, Shard: shard, Held: true, Followed: true, Cuts: cut(10)}
	}
	m := Map{Rules: []Rule{rule("orders", 0, 1), rule("*", 1, 0)}}
	require.True(t, m.Left(0))
	require.False(t, m.Left(1))
	require.False(t, m.Gone(0))
	require.Equal(t, []int{0, 1}, m.Homes("orders"))
	removal := Removal(1)
	m.Rules = append(m.Rules, removal)
	require.Equal(t, []int{0, 1}, m.Homes("orders"), "it is announced only")
	require.True(t, m.Announced().Removes())
	require.False(t, m.Moves("") || m.Moves("orders"))
	between := Map{Rules: []Rule{m.Rules[0], {Pattern: "*", Former: 1, Shard: 0, Held: true, Followed: true, Cuts: cut(20)}, removal}}
	at, known := between.At("orders", part, 15)
	require.Equal(t, []any{1, true}, []any{at, known}, "no removal decides a record")
	m.Rules[2].Held, m.Rules[2].Followed = true, true
	require.True(t, m.Gone(0) && m.Gone(1))
	require.Equal(t, []int{0}, m.Homes("orders"))
	shard, decided := m.At("orders", part, 20)
	require.Equal(t, []any{0, true}, []any{shard, decided})
	require.Empty(t, m.Plan(Rule{Pattern: "*", Shard: 0}))
	require.Len(t, m.Plan(Rule{Pattern: "orders", Shard: 1}), 1)
	m.Rules = append(m.Rules, rule("orders", 0, 1))
	require.Equal(t, []int{1, 0}, m.Homes("orders"))
	require.False(t, m.Gone(3) || m.Left(3))
}
