package sim

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What kfake does not do for the scanners' group, and Kafka does.
const (
	scannerGroup   = "notyet-scanner"
	groupSession   = 6 * time.Second
	groupRebalance = 10 * time.Second
)

// expire ends a dead process's membership of the scanners' group, as Kafka does after the session timeout. kfake does so only for members
// that have sent a heartbeat: one that dies between its join and its first sync stays for good, with partitions that nobody reads.
func (w *world) expire(client string) {
	for range 5 {
		time.Sleep(groupSession)
		for _, c := range w.cells {
			group, err := w.group(context.Background(), c.group())
			if err != nil {
				return // the run is over
			}
			for _, m := range group.Members {
				if m.ClientID == client {
					w.leaveGroup(context.Background(), c.group(), m.MemberID)
				}
			}
		}
	}
}

// endRebalances ends a rebalance of the scanners' group that lasts longer than Kafka allows. Kafka goes on without the members that have
// not joined when the rebalance timeout is over. kfake begins that time again with each member that joins, and does not count a member
// that joins again after its sync went unanswered: three members that ask in turn, each until it gives up, wait for each other for ever.
func (w *world) endRebalances(ctx context.Context, of string) {
	since := time.Now()
	for pause(ctx, 2*time.Second) == nil {
		group, err := w.group(ctx, of)
		if err != nil || group.State != "PreparingRebalance" {
			since = time.Now()
			continue
		}
		if time.Since(since) < groupRebalance+2*time.Second {
			continue
		}
		w.note("the group's rebalance lasts longer than Kafka lets it: its members have to join again")
		for _, m := range group.Members {
			w.leaveGroup(ctx, of, m.MemberID)
		}
	}
}

func (w *world) group(ctx context.Context, name string) (kadm.DescribedGroup, error) {
	groups, err := kadm.NewClient(w.client).DescribeGroups(ctx, name)
	return groups[name], err
}

func (w *world) leaveGroup(ctx context.Context, group, id string) {
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = group, id
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = id
	leave.Members = append(leave.Members, member)
	_, _ = leave.RequestWith(ctx, w.client)
}
