package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/producer"
	"github.com/notyet/notyet/schemas"
)

func TestTimerRecords(t *testing.T) {
	p := producer.New(nil, producer.Config{})
	version := int64(3)
	records, err := p.TimerRecords(producer.Timer{
		Topic: "orders", ID: "nightly", Key: []byte("k"), Value: []byte("v"), Version: &version,
		When: schemas.Timer{Cron: "30 2 * * *", Timezone: "Europe/Berlin", Misfire: schemas.MisfireSkip},
	})
	require.NoError(t, err)
	records[0].Timestamp = time.Now()
	request, err := schemas.Decode(records[0], schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, schemas.OpTimer, request.Op)
	require.Equal(t, version, request.Version)
	require.Equal(t, schemas.Timer{Cron: "30 2 * * *", Timezone: "Europe/Berlin", Misfire: schemas.MisfireSkip}, request.Timer)
	require.Equal(t, "v", string(request.Value))

	negative := int64(-1)
	for want, timer := range map[string]producer.Timer{
		"notyet-topic":              {ID: "t", When: schemas.Timer{Every: time.Minute}},
		"notyet-id":                 {Topic: "orders", When: schemas.Timer{Every: time.Minute}},
		"notyet-cron":               {Topic: "orders", ID: "t"},
		"stands beside notyet-cron": {Topic: "orders", ID: "t", When: schemas.Timer{Every: time.Minute, Cron: "* * * * *"}},
		`notyet-every "10ms"`:       {Topic: "orders", ID: "t", When: schemas.Timer{Every: 10 * time.Millisecond}},
		"notyet-version":            {Topic: "orders", ID: "t", When: schemas.Timer{Every: time.Minute}, Version: &negative},
	} {
		_, err := p.TimerRecords(timer)
		require.ErrorContains(t, err, want)
		var rejection *schemas.Rejection
		require.ErrorAs(t, err, &rejection)
	}
}
