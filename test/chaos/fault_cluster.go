package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Faults of servers of which there are several.

// killController kills the broker that leads the controllers.
func killController(b *breaker) error {
	topic, part := kmsg.NewDescribeQuorumRequestTopic(), kmsg.NewDescribeQuorumRequestTopicPartition()
	topic.Topic, topic.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{part}
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = []kmsg.DescribeQuorumRequestTopic{topic}
	resp, err := req.RequestWith(b.ctx, b.client)
	if err != nil || len(resp.Topics) == 0 || len(resp.Topics[0].Partitions) == 0 {
		return fmt.Errorf("asking for the controller: %w", errors.Join(err, errors.New("nobody says")))
	}
	return b.killBroker(kafkaServer + "-" + strconv.Itoa(int(resp.Topics[0].Partitions[0].LeaderID)))
}

// reassign takes every partition of the run to two brokers and then to three, in another order, and lets the first of each lead.
func reassign(b *breaker) error {
	topics := append(allTargets(), intakeTopic, reportsTopic, resultsTopic)
	before, err := b.leaders(topics)
	if err != nil {
		return err
	}
	b.began("all partitions")
	first := int(before[partition{intakeTopic, 0}]) // the number of a broker is the place of the next one
	if err := b.place(before, first+1, 2); err != nil {
		return err
	}
	if err := b.place(before, first, 3); err != nil {
		return err
	}
	moved := 0
	b.waitUntil(patience, func() bool { // the client remembers who led
		after, err := b.leaders(topics)
		moved = 0
		for p, leader := range before {
			if err == nil && after[p] != leader {
				moved++
			}
		}
		return moved > len(before)/2
	})
	b.evidence(moved > 0, "%d of %d partitions have another leader", moved, len(before))
	return nil
}

type partition struct {
	topic string
	n     int32
}

func (b *breaker) leaders(topics []string) (map[partition]int32, error) {
	found, err := b.admin.ListTopics(b.ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("asking for leaders: %w", err)
	}
	out := map[partition]int32{}
	found.EachPartition(func(d kadm.PartitionDetail) { out[partition{d.Topic, d.Partition}] = d.Leader })
	return out, found.Error()
}

// place gives partitions so many copies, the first on a broker that follows from the number.
func (b *breaker) place(partitions map[partition]int32, first, copies int) error {
	var req kadm.AlterPartitionAssignmentsReq
	var elect kadm.TopicsSet
	for p := range partitions {
		var brokers []int32
		for i := range copies {
			brokers = append(brokers, int32((first+int(p.n)+i)%3+1))
		}
		req.Assign(p.topic, p.n, brokers)
		elect.Add(p.topic, p.n)
	}
	responses, err := b.admin.AlterPartitionAssignments(b.ctx, req)
	if err = errors.Join(err, responses.Error()); err != nil {
		return fmt.Errorf("reassigning partitions: %w", err)
	}
	if !b.waitUntil(patience, func() bool {
		left, err := b.admin.ListPartitionReassignments(b.ctx, elect)
		return err == nil && len(left) == 0
	}) {
		return errors.New("the reassignment of partitions does not end")
	}
	_, err = b.admin.ElectLeaders(b.ctx, kadm.ElectPreferredReplica, elect)
	return err
}

// ensemble returns the ZooKeeper that leads, and the others.
func (b *breaker) ensemble() (leader string, others []string, err error) {
	for _, name := range b.Servers.members(zookeeperServer) {
		text, err := b.Servers.zookeeperAt(name, "srvr")
		if err != nil {
			return "", nil, err
		}
		if strings.Contains(text, "Mode: leader") {
			leader = name
		} else {
			others = append(others, name)
		}
	}
	if leader == "" {
		return "", nil, errors.New("no ZooKeeper leads")
	}
	return leader, others, nil
}

func killEnsembleLeader(b *breaker) error {
	old, _, err := b.ensemble()
	if err != nil {
		return err
	}
	b.began(old)
	if err := b.Servers.Kill(old); err != nil {
		return err
	}
	b.wait(b.randomSpan(0, session))
	if err := b.Servers.Up(b.ctx, old); err != nil {
		return err
	}
	leader, _, err := b.ensemble()
	b.evidence(leader != "" && leader != old, "%s leads", leader)
	return err
}

// loseQuorum kills two of the three ZooKeepers, the leader among them, for a while.
func loseQuorum(b *breaker) error {
	leader, others, err := b.ensemble()
	if err != nil {
		return err
	}
	gone := []string{leader, others[b.rng.IntN(len(others))]}
	b.began(strings.Join(gone, ", "))
	for _, name := range gone {
		if err := b.Servers.Kill(name); err != nil {
			return err
		}
	}
	begin, span := time.Now(), b.randomSpan(0, 3*session)
	b.wait(span)
	refused := b.Servers.refuses(gone[0]) && b.Servers.refuses(gone[1])
	if err := b.Servers.Up(b.ctx, gone...); err != nil {
		return err
	}
	b.evidence(refused, "two of three were gone for %v", time.Since(begin).Round(time.Millisecond))
	return nil
}

// failRedisOver makes a replica the master: its master is killed, or asked to give way.
func failRedisOver(b *breaker) error {
	masters := b.redisMasters()
	if len(masters) == 0 {
		return errors.New("no Redis server is a master")
	}
	old := masters[b.rng.IntN(len(masters))]
	b.began(old)
	changed := func() bool {
		now := b.redisMasters()
		return len(now) == len(masters) && !slices.Contains(now, old)
	}
	if b.rng.IntN(3) == 0 {
		if err := b.giveWay(old); err != nil {
			return err
		}
		b.evidence(b.waitUntil(patience, changed), "it gave way; masters are %v", b.redisMasters())
		return nil
	}
	if err := b.Servers.Kill(old); err != nil {
		return err
	}
	b.evidence(b.waitUntil(patience, changed), "it was killed; masters are %v", b.redisMasters())
	return b.Servers.Up(b.ctx, old)
}

// giveWay asks for a failover without a death.
func (b *breaker) giveWay(old string) error {
	if b.Servers.form == Sentinels {
		_, err := b.Servers.redisAt(b.ctx, b.member(sentinel), "SENTINEL", "FAILOVER", sentinelMaster)
		return err
	}
	port := strconv.Itoa(b.Servers.port(old))
	for _, name := range b.Servers.members(redisServer) {
		role, err := b.Servers.redisAt(b.ctx, name, "ROLE")
		if err != nil {
			return err
		}
		if lines := strings.Fields(role); lines[0] == "slave" && slices.Contains(lines, port) {
			_, err := b.Servers.redisAt(b.ctx, name, "CLUSTER", "FAILOVER")
			return err
		}
	}
	return fmt.Errorf("%s has no replica", old)
}

// redisMasters returns the servers that call themselves masters and have a part of the keys.
func (b *breaker) redisMasters() []string {
	var out []string
	for _, name := range b.Servers.members(redisServer) {
		if role, err := b.Servers.redisAt(b.ctx, name, "ROLE"); err == nil && strings.HasPrefix(role, "master") {
			out = append(out, name)
		}
	}
	return out
}

// promoteMySQL kills the primary. Its replica has all that anybody was told, and takes its place.
func promoteMySQL(b *breaker) error { return b.promote(false) }

// promoteLate kills the primary when its replica has fallen behind: the last seconds are gone, and everybody runs on.
func promoteLate(b *breaker) error {
	if err := b.awaitSlots(); err != nil {
		return err
	}
	return b.promote(true)
}

func (b *breaker) promote(late bool) error {
	stored := func() int64 { return b.databases[0].stored(b.ctx) }
	old := b.Servers.primary()
	b.began(old)
	setback := b.losing()
	if late {
		if err := b.Servers.stopReplica(b.ctx); err != nil {
			return err
		}
		setback.Kept = time.Now().UnixMilli()
		b.wait(b.randomSpan(time.Second, 3*time.Second))
	}
	before := stored()
	setback.Gone = time.Now().UnixMilli()
	if err := b.Servers.Kill(old); err != nil {
		return err
	}
	// Nobody may store anything before it is counted what is gone.
	for _, n := range b.nodes {
		n.proxies[mysqlServer].Cut()
	}
	err := b.Servers.call(b.ctx, "promote")
	to := b.Servers.addr(mysqlServer)
	b.primary.Retarget(to)
	lost := int64(-1)
	if err == nil {
		b.waitUntil(patience, func() bool { return stored() >= 0 })
		lost = before - stored()
		if late {
			b.lose(setback)
		}
	}
	for _, n := range b.nodes {
		n.proxies[mysqlServer].Retarget(to)
		n.proxies[mysqlServer].Heal()
	}
	if err != nil {
		return err
	}
	b.evidence(before >= 0 && late == (lost > 0), "%d stored requests and reports were gone, and everybody ran on", max(lost, 0))
	return b.Servers.Up(b.ctx, old)
}
