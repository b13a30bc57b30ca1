package console

import (
	"net/http"

	"github.com/notyet/notyet/api"
)

// clusterPage is the running services, and the progress of a change of the number of slots.
type clusterPage struct {
	api.Cluster
	Change api.SlotsChange
}

func (c *Console) cluster(r *http.Request) (view, error) {
	var d clusterPage
	if err := c.inside.get(r.Context(), "/cluster", nil, &d.Cluster); err != nil {
		return view{}, err
	}
	err := c.inside.get(r.Context(), "/slots", nil, &d.Change)
	return view{page: "cluster", title: "Cluster", data: d}, err
}
