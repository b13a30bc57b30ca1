package watching

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const boardFile = "../../deploy/grafana/notyet.json"

// board is what Grafana needs of deploy/grafana/notyet.json.
type board struct {
	UID    string  `json:"uid"`
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct {
		X, Y, W, H int
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
		Datasource   struct {
			UID string `json:"uid"`
		} `json:"datasource"`
	} `json:"targets"`
}

func readBoard(t *testing.T) board {
	t.Helper()
	text, err := os.ReadFile(boardFile)
	require.NoError(t, err)
	var b board
	require.NoError(t, json.Unmarshal(text, &b))
	require.Greater(t, len(b.Panels), 30)
	return b
}

// A board that Grafana imports: panels that lie beside one another, on the data source that whoever imports it chooses.
func TestTheBoardIsWhole(t *testing.T) {
	b := readBoard(t)
	require.Equal(t, "notyet", b.UID)
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range b.Panels {
		require.False(t, ids[p.ID], "id %d is there twice", p.ID)
		require.False(t, titles[p.Title], "%q is there twice", p.Title)
		ids[p.ID], titles[p.Title] = true, true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, taken[at], "%q lies upon it", p.Title)
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			require.Empty(t, p.Targets, p.Title)
			continue
		}
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		legends, refs := map[string]bool{}, map[string]bool{}
		for _, target := range p.Targets {
			require.NotEmpty(t, target.Expr, p.Title)
			require.Equal(t, "${datasource}", target.Datasource.UID, p.Title)
			require.False(t, refs[target.RefID] || legends[target.LegendFormat], "%s: two lines look the same", p.Title)
			refs[target.RefID], legends[target.LegendFormat] = true, true
			// A fixed range is too short for some scrape intervals, or hides what is new.
			require.Equal(t, strings.Count(target.Expr, "["), strings.Count(target.Expr, "[$__rate_interval]"), "%s: %s", p.Title, target.Expr)
		}
	}
}
