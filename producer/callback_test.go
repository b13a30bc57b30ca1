package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/producer"
	"github.com/notyet/notyet/schemas"
)

func TestScheduleCallback(t *testing.T) {
	f := newFake(t)
	minute := schemas.DefaultSettings() // its minute is meant
	ref, err := f.Schedule(t.Context(), producer.Task{URL: "https://Shop.Example:443/a?b", Method: "PUT", ID: "x", Delay: time.Second, Value: []byte("v")})
	require.NoError(t, err)
	require.Equal(t, producer.Ref{Topic: "https://shop.example", ID: "x"}, ref)
	_, err = f.Schedule(t.Context(), producer.Task{URL: "https://shop.example/", ID: "y", Delay: time.Second, Settings: &minute})
	require.NoError(t, err)
	require.NoError(t, f.Cancel(t.Context(), ref))
	timer, err := f.SetTimer(t.Context(), producer.Timer{URL: "https://shop.example/tick", ID: "t", When: schemas.Timer{Every: time.Minute}})
	require.NoError(t, err)
	require.Equal(t, "https://shop.example", timer.Topic)
	byID := map[string]schemas.Request{}
	for _, r := range f.requests(t, 4) {
		require.Equal(t, "https://shop.example", r.Topic)
		byID[r.ID+" "+r.Op.String()] = r
	}
	require.Equal(t, schemas.Callback{URL: "https://Shop.Example:443/a?b", Method: "PUT"}, byID["x schedule"].Settings.Callback)
	require.Equal(t, schemas.DefaultCallbackTimeout, byID["x schedule"].Settings.AckTimeout)
	require.Equal(t, time.Minute, byID["y schedule"].Settings.AckTimeout)
	require.Contains(t, byID, "x cancel")
	require.Equal(t, schemas.Callback{URL: "https://shop.example/tick", Method: "POST"}, byID["t timer"].Settings.Callback)

	for _, c := range []struct {
		task producer.Task
		want string
	}{
		{producer.Task{Topic: "orders", URL: "https://shop.example/"}, "stands beside notyet-topic"},
		{producer.Task{URL: "shop.example"}, "is not an absolute http or https URL"},
		{producer.Task{URL: "https://shop.example/", Method: "HEAD"}, "notyet-method"},
		{producer.Task{Topic: "orders", Method: "PUT"}, "means nothing without notyet-url"},
	} {
		c.task.Delay = time.Second
		_, err := f.Schedule(t.Context(), c.task)
		require.ErrorContains(t, err, c.want)
	}
}
