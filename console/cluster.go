package console

import (
	"net/http"

	"github.com/notyet/notyet/api"
)

func (c *Console) cluster(r *http.Request) (view, error) {
	var d api.Cluster
	if err := c.inside.get(r.Context(), "/cluster", nil, &d); err != nil {
		return view{}, err
	}
	return view{page: "cluster", title: "Cluster", data: d}, nil
}
