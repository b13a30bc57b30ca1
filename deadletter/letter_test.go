package deadletter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/notyet/notyet/store/letters"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestShowGivesEveryByteBack(t *testing.T) {
	g := newFixture(t)
	g.kill("orders", "a/ü", "no such topic", []byte{0, 0xfe})
	g.reject("r")

	all, err := Collect(t.Context(), g.local(nil), letters.Filter{}, 10)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Nil(t, all[0].Content)

	l, err := Show(t.Context(), g.Store, all[0].ID)
	require.NoError(t, err)
	require.Equal(t, "a/ü", l.TaskID)
	require.Equal(t, "no such topic", l.Reason)
	key, value, headers, err := l.Bytes()
	require.NoError(t, err)
	require.Equal(t, []byte("key"), key)
	require.Equal(t, []byte{0, 0xfe}, value)
	require.Equal(t, []kgo.RecordHeader{{Key: "h", Value: []byte{0xff}}, {Key: "h"}}, headers)
	data, err := json.Marshal(l)
	require.NoError(t, err)
	require.Contains(t, string(data), `"value":null,"value_base64":"AP4="`)

	l, err = Show(t.Context(), g.Store, all[1].ID)
	require.NoError(t, err)
	require.Equal(t, "notyet-topc", l.Headers[0].Key, "a rejected request is shown as it came")

	_, err = Show(t.Context(), g.Store, 999)
	require.ErrorIs(t, err, ErrNotFound)
}

func TestContentNamesTheFieldThatIsWrong(t *testing.T) {
	x := "x"
	for want, c := range map[string]Content{
		"key_base64":              {KeyBase64: "?"},
		"value_base64":            {Value: &x, ValueBase64: "eA=="},
		"headers[0].value_base64": {Headers: []Header{{Key: "a", ValueBase64: "="}}},
	} {
		_, _, _, err := c.Bytes()
		var fe *FieldError
		require.ErrorAs(t, err, &fe)
		require.Equal(t, want, fe.Field)
	}
}

func TestExport(t *testing.T) {
	g := newFixture(t)
	for i := range 105 {
		g.reject(fmt.Sprint(i))
	}
	for limit, want := range map[int]int{0: 105, 7: 7, 100: 100, 101: 101, 200: 105} {
		var out bytes.Buffer
		n, err := Export(t.Context(), g.local(nil), letters.Filter{Limit: limit}, &out)
		require.NoError(t, err)
		require.Equal(t, want, n)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, want)
		var l Letter
		require.NoError(t, json.Unmarshal([]byte(lines[want-1]), &l))
		require.Equal(t, fmt.Sprint(want-1), l.TaskID)
		require.Equal(t, "v", *l.Value)
	}
}
