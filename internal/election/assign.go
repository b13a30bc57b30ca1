package election

import (
	"cmp"
	"slices"
)

// assign distributes the slots 0..slots-1 among the members, starting from the previous owners.
// Shares differ by at most one, and as few slots as possible move between living members: a member
// keeps slots up to its share, and the larger shares go to the largest owners. The result depends
// only on the arguments, not on their order. Without members or slots nothing is assigned.
func assign(prev map[int]string, members []string, slots int) map[int]string {
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	if len(members) == 0 || slots <= 0 {
		return map[int]string{}
	}
	kept := make(map[string][]int, len(members)) // the slots of each living member, ascending
	for slot := range slots {
		if owner, ok := prev[slot]; ok {
			kept[owner] = append(kept[owner], slot)
		}
	}
	share := shares(kept, members, slots)
	next := make(map[int]string, slots)
	for _, m := range members {
		for _, slot := range kept[m][:min(share[m], len(kept[m]))] {
			next[slot] = m
		}
		share[m] -= min(share[m], len(kept[m])) // from here on: how many slots each member lacks
	}
	fill(next, members, share, slots)
	return next
}

// shares returns each member's number of slots: slots/n, plus one for the slots%n largest owners.
func shares(kept map[string][]int, members []string, slots int) map[string]int {
	ranked := slices.Clone(members)
	slices.SortStableFunc(ranked, func(a, b string) int { return cmp.Compare(len(kept[b]), len(kept[a])) })
	share := make(map[string]int, len(ranked))
	for i, m := range ranked {
		share[m] = slots / len(ranked)
		if i < slots%len(ranked) {
			share[m]++
		}
	}
	return share
}

// fill assigns the free slots, lowest first, to members in need. missing adds up to their number.
func fill(next map[int]string, members []string, missing map[string]int, slots int) {
	i := 0
	for slot := range slots {
		if _, taken := next[slot]; taken {
			continue
		}
		for missing[members[i]] == 0 {
			i++
		}
		next[slot] = members[i]
		missing[members[i]]--
	}
}
