package look

import "context"

// PageCost is how many entries of indexes, and how many rows, one page reads.
func (r Reader) PageCost(ctx context.Context, f ListFilter) (page ListPage, entries, looked int, err error) {
	l := &lister{f: f}
	page, err = r.list(ctx, l)
	return page, l.entries, l.looked, err
}

// RangeQueries are the queries of a run of an index behind a place.
func RangeQueries(column string, after ListPlace, descending bool, n int) ([]string, []any) {
	s := &stream{column: column, value: 1, from: 0, to: 1 << 62, after: &after}
	return s.query(0, descending, n)
}
