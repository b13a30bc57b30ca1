package scanner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store/intake"
)

func TestJudge(t *testing.T) {
	five := intake.Epoch{Number: 5, From: 90, To: 100}
	none := intake.Epoch{Number: -1}
	for name, c := range map[string]struct {
		next  int64
		epoch intake.Epoch
		log   kafka.Extent
		want  verdict
		same  int64
	}{
		"all is there":                          {100, five, kafka.Extent{End: 100, Epoch: 5, EpochEnd: 100}, intact, 100},
		"more is there, of a later leader":      {100, five, kafka.Extent{End: 130, Epoch: 5, EpochEnd: 110}, intact, 100},
		"a clean election right behind":         {100, five, kafka.Extent{End: 130, Epoch: 5, EpochEnd: 100}, intact, 100},
		"shorter":                               {100, none, kafka.Extent{End: 95, Epoch: -1, EpochEnd: -1}, diverged, 95},
		"shorter, and the leader says more":     {100, five, kafka.Extent{End: 95, Epoch: 5, EpochEnd: 93}, diverged, 93},
		"shorter, and the leader knows nothing": {100, five, kafka.Extent{End: 95, Epoch: -1, EpochEnd: -1}, diverged, 95},
		"grown past it again":                   {100, five, kafka.Extent{End: 130, Epoch: 5, EpochEnd: 97}, diverged, 97},
		"an earlier leader went further":        {100, five, kafka.Extent{End: 130, Epoch: 3, EpochEnd: 120}, diverged, 90},
		"an earlier leader went less far":       {100, five, kafka.Extent{End: 130, Epoch: 3, EpochEnd: 80}, diverged, 80},
		"nobody knows":                          {100, five, kafka.Extent{End: 130, Epoch: -1, EpochEnd: -1}, unsure, 100},
		"no epoch was stored":                   {100, none, kafka.Extent{End: 130, Epoch: -1, EpochEnd: -1}, intact, 100},
		"an older scanner stored behind it":     {120, five, kafka.Extent{End: 130, Epoch: 5, EpochEnd: 100}, intact, 120},
		"all that is stored was deleted":        {100, five, kafka.Extent{Start: 100, End: 130, Epoch: 5, EpochEnd: 100}, intact, 100},
		"retention went past it":                {100, five, kafka.Extent{Start: 110, End: 130, Epoch: 5, EpochEnd: 110}, intact, 110},
		"all is gone":                           {100, five, kafka.Extent{Epoch: 5}, diverged, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, same := judge(intake.Source{Next: c.next, Epoch: c.epoch}, c.log)
			require.Equal(t, c.want, got)
			require.Equal(t, c.same, same)
		})
	}
}

func TestFits(t *testing.T) {
	src := intake.Source{Topic: "in", Partition: 2, Next: 100, Epoch: intake.Epoch{Number: 5, From: 90, To: 100}}
	for _, c := range []struct {
		offset int64
		epoch  int32
		fits   bool
	}{
		{100, 5, true}, {100, 6, true}, {100, 4, false}, {100, -1, true},
		{99, 5, true}, {99, 6, false}, {99, 4, false}, {90, 5, true}, {89, 5, true}, {89, 3, true}, {89, 7, false},
	} {
		err := fits(&src, &kgo.Record{Offset: c.offset, LeaderEpoch: c.epoch})
		require.Equal(t, c.fits, err == nil, "%+v: %v", c, err)
	}
	src.Epoch.Number = -1
	require.NoError(t, fits(&src, &kgo.Record{Offset: 1, LeaderEpoch: 9}))
}
