package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/notyet/notyet/api"
)

// clusterPage is the running services, and the progress of a change of the number of slots. Slots
// without an owner that is alive come first, and partitions that are furthest behind.
type clusterPage struct {
	api.Cluster
	Changes                          []shardChange
	NextServices, NextSlots, NextLag string
}

// shardChange is the change of a database.
type shardChange struct {
	Shard int
	api.SlotsChange
}

func (c *Console) cluster(r *http.Request) (view, error) {
	var d clusterPage
	if err := c.inside.get(r.Context(), "/cluster", nil, &d.Cluster); err != nil {
		return view{}, err
	}
	slices.SortStableFunc(d.Slots, func(a, b api.Slot) int { return cmp.Compare(rank(a), rank(b)) })
	slices.SortStableFunc(d.Lag, func(a, b api.Lag) int { return cmp.Compare(b.Lag, a.Lag) })
	d.Services, d.NextServices = part(r, "services", d.Services)
	d.Slots, d.NextSlots = part(r, "slots", d.Slots)
	d.Lag, d.NextLag = part(r, "lag", d.Lag)
	if len(d.Shards) == 0 {
		d.Changes = []shardChange{{}}
		err := c.inside.get(r.Context(), "/slots", nil, &d.Changes[0].SlotsChange)
		return view{page: "cluster", title: "Cluster", data: d}, err
	}
	for _, shard := range d.Shards {
		change := shardChange{Shard: shard}
		err := c.inside.get(r.Context(), "/slots", url.Values{"shard": {strconv.Itoa(shard)}}, &change.SlotsChange)
		if err != nil && asProblem(err).Status == http.StatusServiceUnavailable {
			noteMissing(r.Context(), []int{shard})
			continue
		}
		if err != nil {
			return view{}, err
		}
		d.Changes = append(d.Changes, change)
	}
	return view{page: "cluster", title: "Cluster", data: d}, nil
}

func rank(s api.Slot) int {
	if s.Alive {
		return 1
	}
	return 0
}

// partRows is how many rows of a table a page shows.
const partRows = 64

// part returns the rows of a table from the one on that the page asks for, and where the rest is.
func part[T any](r *http.Request, table string, all []T) (rows []T, next string) {
	from, _ := strconv.Atoi(r.FormValue(table))
	from = max(0, min(from, len(all)))
	to := min(from+partRows, len(all))
	if to < len(all) {
		next = "/cluster?" + table + "=" + strconv.Itoa(to) + "#" + table
	}
	return all[from:to], next
}
