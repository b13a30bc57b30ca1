package election

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

func of(installation string) func(*Config) {
	return func(c *Config) { c.Installation = installation }
}

// refused runs a member that must end by itself.
func (e *ensemble) refused(installation string) {
	e.t.Helper()
	err := e.member("of "+installation, of(installation)).Run(e.t.Context())
	require.ErrorIs(e.t, err, ErrOtherInstallation)
	require.ErrorContains(e.t, err, "zookeeper.root")
	require.ErrorContains(e.t, err, e.paths.installation)
}

func TestARootBelongsToOneInstallation(t *testing.T) {
	onBoth(t, func(e *ensemble) {
		a, b := e.start("a", of("one"), steady), e.start("b", of("one"), steady)
		e.settle(a, b)
		epoch := a.Current().Epoch
		e.refused("two")
		c := e.start("c", steady) // of the version before, in a rolling restart
		e.settle(a, b, c)
		require.Equal(e.t, epoch+1, a.Current().Epoch, "the refused one has moved nothing")
		e.nobodyLapsed(a, b)

		a.leave()
		b.leave()
		c.leave()
		e.refused("two") // while the first one's members are away
		a = e.start("a", of("one"))
		e.settle(a)
	})
}

// Both start at the same moment on an ensemble where nothing is.
func TestTwoInstallationsStartTogether(t *testing.T) {
	onBoth(t, func(e *ensemble) {
		ended := make(chan error, 2)
		for _, id := range []string{"one", "two"} {
			z := e.member("of "+id, of(id))
			go func() { ended <- z.Run(e.t.Context()) }()
		}
		require.ErrorIs(e.t, <-ended, ErrOtherInstallation)
		owner, _, err := e.admin.Get(e.paths.installation)
		require.NoError(e.t, err)
		eventually(e.t, "the other one leads", func() bool {
			s := e.published()
			return len(s.Members) == 1 && s.Members[0] == "of "+string(owner)
		})
		e.t.Cleanup(func() { require.NoError(e.t, <-ended) })
	})
}

// An operator deletes the claim of an installation that is there.
func TestADeletedClaimIsOneInstallationsInTheEnd(t *testing.T) {
	onBoth(t, func(e *ensemble) {
		a := e.start("a", of("one"), steady)
		e.settle(a)
		require.NoError(e.t, e.admin.Delete(e.paths.installation, -1))
		data := []byte(`{"id":"x","instance":"x","installation":"two"}`)
		path, err := e.admin.Create(e.paths.members+"/_c_x-m-", data, zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(e.t, err)
		eventually(e.t, "claimed again", func() bool {
			owner, _, err := e.admin.Get(e.paths.installation)
			return err == nil && string(owner) == "one"
		})
		e.settle(a)
		require.NoError(e.t, e.admin.Delete(path, -1))
		e.nobodyLapsed(a)
	})
}
