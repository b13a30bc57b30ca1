package task

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func plain(value string) *schemas.Body {
	return &schemas.Body{Value: []byte(value), Settings: schemas.DefaultSettings()}
}

func TestSumValues(t *testing.T) {
	for _, c := range []struct{ name, old, later, want string }{
		{"integers", `{"n":1}`, `{"n":2}`, `{"n":3}`},
		{"negative", `{"n":1}`, `{"n":-2}`, `{"n":-1}`},
		{"to zero", `{"n":-0.1}`, `{"n":0.1}`, `{"n":0}`},
		{"minus zero", `{"n":-0}`, `{"n":-0.0}`, `{"n":0}`},
		{"decimals that no float64 holds", `{"n":0.1}`, `{"n":0.2}`, `{"n":0.3}`},
		{"money", `{"n":0.10}`, `{"n":0.20}`, `{"n":0.3}`},
		{"integers that no float64 holds", `{"n":9007199254740993}`, `{"n":2}`, `{"n":9007199254740995}`},
		{"beyond 64 bits", `{"n":18446744073709551615}`, `{"n":1}`, `{"n":18446744073709551616}`},
		{"thirty digits", `{"n":0.100000000000000000000000000001}`, `{"n":1}`, `{"n":1.100000000000000000000000000001}`},
		{"exponents", `{"n":1e3}`, `{"n":1.5E-3}`, `{"n":1000.0015}`},
		{"a signed exponent", `{"n":1e+2}`, `{"n":1}`, `{"n":101}`},
		{"more places than digits", `{"n":1e-10}`, `{"n":1}`, `{"n":1.0000000001}`},
		{"fewer places than digits", `{"n":1.25e1}`, `{"n":0}`, `{"n":12.5}`},
		{"nested", `{"a":{"b":{"n":1,"m":5}}}`, `{"a":{"b":{"n":2}}}`, `{"a":{"b":{"m":5,"n":3}}}`},
		{"new fields", `{"a":1}`, `{"b":{"c":2}}`, `{"a":1,"b":{"c":2}}`},
		{"other leaves: the later wins", `{"s":"x","b":true,"z":1,"l":[1]}`, `{"s":"y","b":false,"z":null,"l":[2,3]}`, `{"b":false,"l":[2,3],"s":"y","z":null}`},
		{"other kinds: the later wins", `{"a":1,"b":{"n":1},"c":"1"}`, `{"a":"x","b":2,"c":3}`, `{"a":"x","b":2,"c":3}`},
		{"an object over a number", `{"a":1}`, `{"a":{"n":2}}`, `{"a":{"n":2}}`},
		{"of a field twice: its last", `{"n":1,"n":10}`, `{"n":2,"n":20}`, `{"n":30}`},
		{"white space", " {\n\"n\" : 1 }\t", ` { "n" : 2 } `, `{"n":3}`},
		{"characters that HTML minds", `{"s":"<&>","n":1}`, `{"n":1}`, `{"n":2,"s":"<&>"}`},
		{"empty", `{}`, `{}`, `{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := sumValues(plain(c.old), []byte(c.later))
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
}

func TestSumValuesRefuses(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)
	for _, c := range []struct{ name, old, later, reason string }{
		{"nothing", `{}`, ``, "is not a JSON object"},
		{"no JSON", `{}`, `{"n":`, "is not a JSON object"},
		{"a leading zero", `{}`, `{"n":01}`, "is not a JSON object"},
		{"NaN", `{}`, `{"n":NaN}`, "is not a JSON object"},
		{"null", `{}`, `null`, "it is another kind of JSON value"},
		{"a number", `{}`, `1`, "it is another kind of JSON value"},
		{"more behind", `{}`, `{"n":1}{"n":2}`, "more follows"},
		{"garbage behind", `{}`, `{"n":1}x`, "more follows"},
		{"too deep", `{}`, deep, "is not a JSON object"},
		{"a pending array", `[1]`, `{"n":1}`, "the pending task's value is not a JSON object"},
		{"a huge exponent", `{"a":{"n":1}}`, `{"a":{"n":1e309}}`, `a number is too large`},
		{"a tiny exponent", `{"n":1}`, `{"n":1e-309}`, "is too large or too small"},
		{"an exponent beyond int", `{"n":1}`, `{"n":1e99999999999999999999}`, "is too large"},
		{"a huge pending exponent", `{"n":1e309}`, `{"n":1}`, "is too large"},
		{"a book of digits", `{"n":1}`, `{"n":0.` + strings.Repeat("7", 200_000) + `}`, "is too large or too small"},
	} {
		t.Run(c.name, func(t *testing.T) {
			const most = 2 * time.Second
			fastest := time.Hour
			for tries := 0; tries < 5 && fastest >= most; tries++ { // a machine may stand still
				began := time.Now()
				_, err := sumValues(plain(c.old), []byte(c.later))
				fastest = min(fastest, time.Since(began))
				require.ErrorContains(t, err, c.reason)
				require.Less(t, len(err.Error()), 300, "a reason is not as long as the value")
			}
			require.Less(t, fastest, most, "other tasks wait behind this one")
		})
	}
}

// What fails half-way changes nothing of the task, whose body is only read.
func TestSumValuesLeavesTheOldBody(t *testing.T) {
	old := plain(`{"a":1,"n":1}`)
	_, err := sumValues(old, []byte(`{"a":1,"n":1e999}`))
	require.Error(t, err)
	require.Equal(t, `{"a":1,"n":1}`, string(old.Value))
}

func TestAppendValues(t *testing.T) {
	appended := func(value string) *schemas.Body {
		b := plain(value)
		b.Settings.IfExists, b.Settings.Merge = schemas.Merge, schemas.MergeAppend
		return b
	}
	for _, c := range []struct {
		name  string
		old   *schemas.Body
		later string
		want  string // empty: refused
	}{
		{"the first", nil, `{"a":1}`, `[{"a":1}]`},
		{"the first, an array", nil, `[]`, `[[]]`},
		{"the next", appended(`[1]`), `2`, `[1,2]`},
		{"an array to an array", appended(`[[1]]`), `[2]`, `[[1],[2]]`},
		{"to what was not appended", plain(`[1]`), `2`, `[[1],2]`},
		{"to what was not appended, with white space", plain(" 1\n"), `2`, `[1,2]`},
		{"white space goes", nil, " \n null\t", `[null]`},
		{"numbers stay as they are written", appended(`[1.10]`), `1e400`, `[1.10,1e400]`},
		{"to a null value", plain(""), `1`, ""},
		{"to a text", plain("x"), `1`, ""},
		{"nothing", appended(`[1]`), ``, ""},
		{"two values", appended(`[1]`), `1,2`, ""},
		{"the end of an array", appended(`[1]`), `1]`, ""},
		{"no JSON", nil, `{`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := ""
			if c.old != nil {
				before = string(c.old.Value)
			}
			got, err := appendValues(c.old, []byte(c.later))
			if c.old != nil {
				require.Equal(t, before, string(c.old.Value))
			}
			if c.want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
			require.True(t, json.Valid(got))
		})
	}
}

// FuzzSum holds the sum to two laws on any input: it never panics, and on objects of integers the order does not matter and
// every leaf is what big.Int says.
func FuzzSum(f *testing.F) {
	for _, seed := range [][2]string{{`{"n":1}`, `{"n":2}`}, {`{"a":{"b":-5},"c":7}`, `{"a":{"b":1e2}}`}, {`{"n":"x"}`, `[`}, {`{"n":1e308}`, `{"n":-1e-308}`}, {`{"n":0.10}`, `{"n":null}`}} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		ab, errA := sumValues(&schemas.Body{Value: a}, b)
		ba, errB := sumValues(&schemas.Body{Value: b}, a)
		if (errA == nil) != (errB == nil) {
			t.Fatalf("one order adds, the other does not: %v, %v", errA, errB)
		}
		if errA != nil {
			return
		}
		if !json.Valid(ab) {
			t.Fatalf("not JSON: %q", ab)
		}
		x, y := integers(a), integers(b)
		if x == nil || y == nil {
			return
		}
		if string(ab) != string(ba) {
			t.Fatalf("the order matters: %s, %s", ab, ba)
		}
		for k, n := range y {
			if x[k] == nil {
				x[k] = new(big.Int)
			}
			x[k].Add(x[k], n)
		}
		if got, want := fmt.Sprint(integers(ab)), fmt.Sprint(x); got != want {
			t.Fatalf("the sum is %s, not %s", got, want)
		}
	})
}

// integers reads a flat object of integers; nil when it is something else.
func integers(b []byte) map[string]*big.Int {
	var raw map[string]json.Number
	var kinds map[string]any
	if json.Unmarshal(b, &raw) != nil || json.Unmarshal(b, &kinds) != nil {
		return nil
	}
	out := map[string]*big.Int{}
	for k, v := range raw {
		n, ok := new(big.Int).SetString(v.String(), 10)
		if _, number := kinds[k].(float64); !ok || !number {
			return nil
		}
		out[k] = n
	}
	return out
}

// objectOf returns a JSON object of about n bytes with as many fields as that has room for.
func objectOf(n int) string {
	var b strings.Builder
	b.WriteString(`{"n":0`)
	for i := 0; b.Len() < n-12; i++ {
		fmt.Fprintf(&b, `,"%d":1`, i)
	}
	return b.String() + "}"
}

func TestLargeObjectsAreNotAdded(t *testing.T) {
	_, err := sumValues(nil, []byte(objectOf(MaxSummed+100)))
	require.ErrorContains(t, err, "and 262144 are allowed")
	_, err = sumValues(plain(objectOf(MaxSummed+100)), []byte(`{"n":1}`))
	require.ErrorContains(t, err, "the pending task's value has")
	_, err = sumValues(plain(objectOf(MaxSummed-100)), []byte(`{"n":1}`))
	require.NoError(t, err)
}
