package scanner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
)

const copyGroup = "notyet-scanner"

var copyTopics = []string{schemas.TopicIntake, schemas.TopicReports, schemas.TopicCancels}

func (f *fixture) claim() kafka.Claim {
	f.Helper()
	c, err := kafka.GroupClaim(f.Context(), f.client, copyGroup, copyTopics...)
	require.NoError(f, err)
	return c
}

// A scanner's commits name the copy of the database. One with an older copy ends before it commits or stores anything.
func TestAScannerWithAnOlderCopyEnds(t *testing.T) {
	f := newFixture(t)
	installation, err := f.store.Installation(t.Context())
	require.NoError(t, err)
	cfg, adm := Config{Installation: installation}, admin.New(f.store)
	r := f.start(f.store, cfg)
	unnamed := kafka.Claim{Installation: installation}
	f.eventually("the group is claimed", func() bool { return f.claim() == unnamed })
	r.end()

	named := kafka.Claim{Installation: installation, Copy: kafka.NewCopy("ann")}
	require.NoError(t, adm.NameCopy(t.Context(), "", named.Copy.String()))
	r = f.start(f.store, cfg)
	f.eventually("the scanner publishes the database's name", func() bool { return f.claim() == named })
	r.end()

	newer := kafka.Claim{Installation: installation, Copy: kafka.NewCopy("bob", named.Copy)}
	require.NoError(t, kafka.TakeGroup(t.Context(), f.client, copyGroup, newer, copyTopics...))
	f.publish(ask("late", 0))
	require.ErrorIs(t, f.scanner(f.store, cfg).Run(t.Context()), kafka.ErrOlderCopy)
	require.ErrorIs(t, f.scanner(f.store, cfg).CatchUp(t.Context(), func(int64) {}), kafka.ErrOlderCopy)
	require.Equal(t, newer, f.claim())
	require.Zero(t, f.count("SELECT COUNT(*) FROM tasks"))

	require.NoError(t, adm.NameCopy(t.Context(), named.Copy.String(), newer.Copy.String()))
	f.start(f.store, cfg)
	f.eventually("it is stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 1 })
}

// Somebody takes the rights on one intake away: requests of the others are stored all the same.
func TestAnIntakeWithoutRightsHoldsUpNoOther(t *testing.T) {
	f := newFixture(t)
	installation, err := f.store.Installation(t.Context())
	require.NoError(t, err)
	_, err = kadm.NewClient(f.client).CreateTopic(t.Context(), 1, 1, nil, "tenant")
	require.NoError(t, err)
	f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "tenant", Err: kerr.TopicAuthorizationFailed, Count: -1})
	f.publish(ask("first", 0))
	f.start(f.store, Config{Installation: installation, Intake: []string{schemas.TopicIntake, "tenant"}})
	f.eventually("it is stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 1 })
}
