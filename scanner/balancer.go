package scanner

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// balancer shares the partitions among those members of the group that can store what they read. Each member says with each join
// whether it can. The leader leaves out those that fail, as if they had no interest in any topic, while there are some that work or
// rest, and those that rest while there are some that work. So if nobody works, all have their share, and a member that is alone has
// everything.
//
// A member that works says nothing, like one of a version that does not know of this; a leader of that version leaves nobody out.
type balancer struct {
	kgo.GroupBalancer
	join func() ability // asked with each join
}

// marks are what members add to their user data. Whoever does not know of them reads over them.
var marks = map[ability][]byte{rests: []byte("notyet rests"), falters: []byte("notyet falters"), fails: []byte("notyet fails")}

// JoinGroupMetadata implements kgo.GroupBalancer.
func (b balancer) JoinGroupMetadata(topics []string, current map[string][]int32, generation int32) []byte {
	said := b.GroupBalancer.JoinGroupMetadata(topics, current, generation)
	var meta kmsg.ConsumerMemberMetadata
	mark := marks[b.join()]
	if mark == nil || meta.ReadFrom(said) != nil {
		return said
	}
	meta.UserData = append(meta.UserData, mark...)
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

// saidBy is what a member said as it joined.
func saidBy(meta kmsg.ConsumerMemberMetadata) ability {
	for a, mark := range marks {
		if bytes.HasSuffix(meta.UserData, mark) {
			return a
		}
	}
	return works
}
