package intake

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/tables"
)

// The largest values that an intake takes must fit the server's packets, whatever bytes they are: written into the text of a
// statement, a zero or a quote takes two.
func TestLargestValuesAreStored(t *testing.T) {
	for _, c := range []struct {
		name string
		fill byte
	}{{"zeros", 0}, {"quotes", '\''}, {"backslashes", '\\'}, {"letters", 'x'}} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				largest := string(bytes.Repeat([]byte{c.fill}, schemas.MaxValueBytes))
				almost := largest[:tables.MaxBytes-1000]
				s.do(s.schedule("before", value(almost)), s.schedule("a", value(largest)), s.schedule("b", value(largest)), s.schedule("c", value(almost)))
				for i, id := range []string{"a", "b"} {
					require.Len(t, s.body(id).Value, schemas.MaxValueBytes, fmt.Sprint(i))
				}
				require.Len(t, s.body("before").Value, len(almost))
			})
		})
	}
}
