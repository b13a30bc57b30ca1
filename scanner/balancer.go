package scanner

import (
	"bytes"
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/internal/kafka"
)

// balancer shares the partitions among the able members of the group. Each member tells its ability
// with each join. The leader leaves out failing members while some work or rest, and resting
// members while some work, as if they had no interest in any topic. So if nobody works, all have
// their share, and a lone member has everything.
//
// A member that says nothing works, like an older version. An older leader leaves nobody out.
type balancer struct {
	kgo.GroupBalancer
	join func() ability // asked with each join
}

// marks are what members add to their user data. Older versions ignore the marks.
var marks = map[ability][]byte{works: []byte("notyet works"), rests: []byte("notyet rests"), falters: []byte("notyet falters"), fails: []byte("notyet fails")}

// JoinGroupMetadata implements kgo.GroupBalancer.
func (b balancer) JoinGroupMetadata(topics []string, current map[string][]int32, generation int32) []byte {
	said := b.GroupBalancer.JoinGroupMetadata(topics, current, generation)
	var meta kmsg.ConsumerMemberMetadata
	if meta.ReadFrom(said) != nil {
		return said
	}
	meta.UserData = append(meta.UserData, marks[b.join()]...)
	return meta.AppendTo(nil)
}

// MemberBalancer implements kgo.GroupBalancer.
func (b balancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	metas, best := make([]kmsg.ConsumerMemberMetadata, len(members)), fails
	for i, m := range members {
		if err := metas[i].ReadFrom(m.ProtocolMetadata); err != nil {
			return b.GroupBalancer.MemberBalancer(members) // which says what is wrong
		}
		best = min(best, saidBy(metas[i]))
	}
	sharing := make([]kmsg.JoinGroupResponseMember, len(members))
	for i, m := range members {
		if said := saidBy(metas[i]); said == fails && best <= rests || said == rests && best == works {
			metas[i].Topics = nil // it still names its partitions, so that nobody gets them before it has given them up
			m.ProtocolMetadata = metas[i].AppendTo(nil)
		}
		sharing[i] = m
	}
	return b.GroupBalancer.MemberBalancer(sharing)
}

func saidBy(meta kmsg.ConsumerMemberMetadata) ability {
	for a, mark := range marks {
		if bytes.HasSuffix(meta.UserData, mark) {
			return a
		}
	}
	return works
}

// AtWork returns the members of a group that say they can store what they read.
func AtWork(ctx context.Context, client *kgo.Client, group string) ([]string, error) {
	return kafka.GroupMarked(ctx, client, group, marks[works])
}
