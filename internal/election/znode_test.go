package election

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPathsAreMadeParentsFirst(t *testing.T) {
	p := pathsUnder("/a/b")
	require.Equal(t, []string{"/a", "/a/b", "/a/b/members", "/a/b/assignment"}, p.all)
	require.Equal(t, "/a/b/members/m-", p.candidate)
}

func TestSequence(t *testing.T) {
	tests := map[string]struct {
		seq int32
		ok  bool
	}{
		"_c_00112233445566778899aabbccddeeff-m-0000000042":  {42, true},
		"_c_00112233445566778899aabbccddeeff-m--2147483648": {-2147483648, true},
		"_c_00112233445566778899aabbccddeeff-m-":            {0, false},
		"something":                                         {0, false},
		"x-m-99999999999999":                                {0, false},
	}
	for name, tt := range tests {
		seq, ok := sequence(name)
		require.Equal(t, tt.ok, ok, name)
		if ok {
			require.Equal(t, tt.seq, seq, name)
		}
	}
	require.Negative(t, bySequence(candidate{seq: 2147483647}, candidate{seq: -2147483648}), "the number has wrapped")
}

func TestSharingRoundTrip(t *testing.T) {
	s := newSharing(7, []string{"a", "b"}, map[int]string{0: "b", 1: "a", 2: "b"})
	data, err := json.Marshal(s)
	require.NoError(t, err)
	require.JSONEq(t, `{"epoch":7,"members":["a","b"],"owners":[1,0,1]}`, string(data))
	back, err := decodeSharing(data)
	require.NoError(t, err)
	require.Equal(t, s, back)
	require.Equal(t, Assignment{Epoch: 7, Slots: []int{0, 2}, Members: []string{"a", "b"}}, back.of("b", ""))
	require.Equal(t, Assignment{Epoch: 7, Members: []string{"a", "b"}}, back.of("stranger", ""))
}

func FuzzDecodeSharing(f *testing.F) {
	f.Add([]byte(``))
	f.Add([]byte(`{"epoch":7,"members":["a","b"],"owners":[1,0,1]}`))
	f.Add([]byte(`{"epoch":7,"members":["a"],"owners":[1]}`))
	f.Add([]byte(`{"epoch":7,"members":["a"],"owners":[0],"instances":[]}`))
	f.Add([]byte(`{"epoch":7,"members":["a"],"owners":[-1]}`))
	f.Add([]byte(`{"epoch":-7}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeSharing(data)
		if err != nil {
			require.Zero(t, s, "an unreadable assignment is none")
			return
		}
		require.Len(t, s.owners(), len(s.Owners))
		require.GreaterOrEqual(t, s.Epoch, int64(0))
		s.of("a", "")
	})
}
