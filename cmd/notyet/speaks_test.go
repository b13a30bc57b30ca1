package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

// Whatever somebody writes who may write the bank's intake alone, nothing changes that a token for the shop's topics can read, and no
// event speaks of the shop. The bank's own token shows what was rejected.
func TestAnIntakesWriterSpeaksForItsTargetsOnly(t *testing.T) {
	const bankIntake = "notyet.intake.bank"
	shopToken, shop := access.NewToken("shop", access.Operate, patterns("shop"))
	bankToken, bank := access.NewToken("bank", access.Operate, patterns("bank"))
	tokens, err := yaml.Marshal([]access.Entry{shop, bank})
	require.NoError(t, err)
	d := startDev(t, "--config", fileWith(t, "notyet.yaml", `intake:
  topics: [{topic: notyet.intake, allowed-targets: ["shop.*", "https://shop.test"]}, {topic: `+bankIntake+`, allowed-targets: ["bank.*", "https://bank.test"]}]
`), "--set", "http.tokens="+fileWith(t, "tokens.yaml", string(tokens)))
	w := &accessWorld{t: t, addr: d.http, root: shopToken, letters: map[string]string{}}
	for _, topic := range []string{"shop.vault", "https://shop.test"} {
		w.fill(topic)
	}
	moment := regexp.MustCompile(`"at":\d+|"services":\{[^}]*\}`) // when figures were read, and of how many processes they are
	seen := func() (all []string) {
		for _, o := range operations {
			if o.page || o.method != http.MethodGet || o.about == "none" || o.about == "all" {
				continue
			}
			for _, topic := range []string{"shop.vault", "https://shop.test"} {
				for _, id := range []string{"a", "b", "c", "dead"} {
					path := strings.NewReplacer("{topic}", topic, "{id}", id, "{letter}", w.letters[topic]).Replace(o.path)
					status, text := w.send(identity{authorization: "Bearer " + shopToken}, o.method, strings.ReplaceAll(path, "https://shop.test", "https:%2F%2Fshop.example"), "", false)
					all = append(all, fmt.Sprint(path, status, moment.ReplaceAllString(text, "")))
				}
			}
		}
		return all
	}
	before := seen()
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	producer := client(t, d.kafka, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var records []*kgo.Record
	for range 500 {
		records = append(records, &kgo.Record{Topic: bankIntake, Key: []byte(pick(rng, []string{"k", "a"})), Value: []byte("CALL +49 666"), Headers: strangersHeaders(rng)})
	}
	last := &kgo.Record{Topic: bankIntake, Headers: recordtest.Headers(schemas.HeaderTopic, "bank.open", schemas.HeaderID, "last", schemas.HeaderDelay, "1h", schemas.HeaderEvents, "all")}
	require.NoError(t, producer.ProduceSync(t.Context(), append(records, last)...).FirstErr())
	isLast := func(e schemas.Event) bool { return e.ID == "last" && e.State == schemas.StateScheduled }
	events(t, d.kafka, isLast) // all of its partition is stored
	status, text := w.send(identity{authorization: "Bearer " + bankToken}, "GET", "/api/v1/deadletters?limit=1000&topic="+bankIntake, "", false)
	require.Equal(t, http.StatusOK, status, text)
	rejected := strings.Count(text, `"kind":"rejected"`)
	require.NotZero(t, rejected, "who may use all of the intake's targets sees what it has rejected")

	told := 0
	for _, e := range events(t, d.kafka, func(e schemas.Event) bool {
		if e.Topic == "" {
			told++
		}
		return told == rejected
	}) {
		if !strings.HasPrefix(e.Request, bankIntake) {
			continue
		}
		require.NotContains(t, e.Topic, "shop", "%v", e)
		if e.Topic == "" {
			require.Equal(t, []any{schemas.StateRejected, e.Request}, []any{e.State, e.ID}, "%v", e)
		}
	}
	require.Equal(t, before, seen())
	status, text = w.send(identity{authorization: "Bearer " + shopToken}, "GET", "/api/v1/deadletters?topic="+bankIntake, "", false)
	require.Equal(t, http.StatusForbidden, status, text)
}

// strangersHeaders are those of a request that mostly names what is the shop's, in one way or in several, mostly with a mistake.
func strangersHeaders(rng *rand.Rand) []kgo.RecordHeader {
	shops := []string{"shop.vault", "shop.open", "shop.vault ", "https://shop.test", "notyet.intake", "bank.open", ""}
	pairs := []string{schemas.HeaderTopic, pick(rng, shops)}
	add := func(one int, name string, values ...string) {
		if rng.IntN(one) == 0 {
			pairs = append(pairs, name, pick(rng, values))
		}
	}
	if rng.IntN(5) == 0 {
		pairs = nil
	}
	add(6, schemas.HeaderTopic, shops...)
	add(5, schemas.HeaderURL, "https://shop.test/hook", "https://bank.test/", "shop.vault")
	add(1, schemas.HeaderID, "a", "b", "c", "dead", "notyet.intake/0/0", "")
	add(6, schemas.HeaderID, "a", "b")
	add(2, schemas.HeaderOp, "schedule", "cancel", "fire", "timer", "timer-delete", "timer-disable", "stop", "CANCEL")
	add(2, schemas.HeaderDelay, "1h", "0s", "-1s", "soon")
	add(4, schemas.HeaderEvery, "1h", "1ms")
	add(4, schemas.HeaderVersion, "9223372036854775807", "-1")
	add(4, "notyet-note", "PAYMENT REFUSED")
	add(8, "Notyet-Topic", "shop.vault")
	add(8, schemas.HeaderStatus, "ok")
	pieces := len(pairs) / 2
	rng.Shuffle(pieces, func(i, j int) {
		pairs[2*i], pairs[2*j], pairs[2*i+1], pairs[2*j+1] = pairs[2*j], pairs[2*i], pairs[2*j+1], pairs[2*i+1]
	})
	return recordtest.Headers(pairs...)
}

// events reads the results topic up to the wanted event.
func events(t *testing.T, broker string, wanted func(schemas.Event) bool) (all []schemas.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := client(t, broker, kgo.ConsumeTopics(schemas.TopicResults), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	for {
		fetches := c.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "the wanted event has not come")
		for _, r := range fetches.Records() {
			e, err := schemas.DecodeEvent(r)
			require.NoError(t, err)
			if all = append(all, e); wanted(e) {
				return all
			}
		}
	}
}
