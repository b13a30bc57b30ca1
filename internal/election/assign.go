package election

import (
	"cmp"
	"slices"
)

// assign shares slots 0..slots-1 among members, starting from who owned them before. Shares differ by at most one, and no
// sharing with such shares moves fewer slots between living members: a member keeps what it has up to its share, and the
// larger shares go to those who have most. It depends on nothing but its arguments (not on their order). Nobody alive, or
// no slots: nothing is assigned.
func assign(prev map[int]string, members []string, slots int) map[int]string {
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	if len(members) == 0 || slots <= 0 {
		return map[int]string{}
	}
	kept := make(map[string][]int, len(members)) // by living member: its slots, ascending
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
		share[m] -= min(share[m], len(kept[m])) // from here on: what is still missing
	}
	fill(next, members, share, slots)
	return next
}

// shares says how many slots each member gets: slots/n, and one more for the slots%n members that own most.
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

// fill hands the free slots, lowest first, to the members that miss some; missing adds up to the number of free slots.
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
