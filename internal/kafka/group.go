package kafka

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// GroupMembers returns client ids and hosts of a group's members; a missing group has none.
func GroupMembers(ctx context.Context, client *kgo.Client, group string) ([]string, error) {
	return GroupMarked(ctx, client, group, nil)
}

// GroupMarked is GroupMembers, of those whose data for the group's leader end with a mark.
func GroupMarked(ctx context.Context, client *kgo.Client, group string, mark []byte) ([]string, error) {
	groups, err := kadm.NewClient(client).DescribeGroups(ctx, group)
	if err == nil {
		err = groups[group].Err
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the members of group %s: %w", group, err)
	}
	var out []string
	for _, m := range groups[group].Members {
		said, _ := m.Join.AsConsumer()
		if len(mark) == 0 || said != nil && bytes.HasSuffix(said.UserData, mark) {
			out = append(out, m.ClientID+"@"+m.ClientHost)
		}
	}
	return out, nil
}

// Claim says whose a group's offsets are.
type Claim struct {
	Installation string
	Copy         Copy // of its database
}

// Copy is the name of a copy of an installation's database. Only a command names a copy, so that
// processes with an older one end. The zero Copy is that of a database which none has named.
type Copy struct {
	N    int64 // newer ones have higher numbers
	Name string
	By   string // who named it, and when; for operators
}

// NewCopy names a copy that is newer than others. Its number is the time, in seconds, so that it is
// also newer than one whose name Kafka has forgotten.
func NewCopy(by string, others ...Copy) Copy {
	c := Copy{N: time.Now().Unix(), Name: fmt.Sprintf("%016x", rand.Uint64()), By: by}
	for _, other := range others {
		c.N = max(c.N, other.N+1)
	}
	return c
}

// String is the form that ParseCopy reads; "" for the zero Copy.
func (c Copy) String() string {
	if c.N == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s %s", c.N, c.Name, c.By)
}

// ParseCopy reads the form of String.
func ParseCopy(text string) (c Copy, err error) {
	if text == "" {
		return c, nil
	}
	n, rest, _ := strings.Cut(text, " ")
	c.Name, c.By, _ = strings.Cut(rest, " ")
	if c.N, err = strconv.ParseInt(n, 10, 64); err != nil || c.N < 1 || c.Name == "" {
		return Copy{}, fmt.Errorf("%q is no name of a copy", text)
	}
	return c, nil
}

// ErrOlderCopy means: a command has given another copy of the database a newer name.
var ErrOlderCopy = errors.New("another copy of this database has taken its place")

// Replaces returns ErrOlderCopy if the claim of the group names another copy of the same
// installation's database than ours, and ours is not newer.
func (c Claim) Replaces(ours Claim, group string) error {
	if c.Installation != ours.Installation || c.Copy.N < ours.Copy.N || c.Copy.N == ours.Copy.N && c.Copy.Name == ours.Copy.Name {
		return nil
	}
	return fmt.Errorf("%w: the consumer group %s is with copy %s, and mysql.dsn leads to copy %s: correct mysql.dsn; or, to go on with this database instead, stop all services and run `notyet deadletter reconcile` (docs/recovery.md)",
		ErrOlderCopy, group, c.Copy, cmp.Or(ours.Copy.String(), "0, which has no name"))
}

// The metadata of an installation's committed offsets begins with one of these. Versions before
// copies had names read the first one only, and take the second one for no claim.
const (
	claimPrefix = "notyet installation "
	copyPrefix  = "notyet copy "
	// restartsPrefix stands before the claim on a partition that was restarted. Versions before it
	// take the note for no claim.
	restartsPrefix = "notyet restarts "
)

// Restarts is how often operators have restarted a partition of a topic as another source. A
// database that has fewer was set back. The zero Restarts: never.
type Restarts struct {
	TopicID [16]byte
	N       int
}

// cutRestarts returns the restarts that a note names, and the claim behind them.
func cutRestarts(note string) (r Restarts, claim string) {
	rest, restarted := strings.CutPrefix(note, restartsPrefix)
	of, rest, _ := strings.Cut(rest, " ")
	n, claim, _ := strings.Cut(rest, " ")
	id, err := hex.DecodeString(of)
	if r.N, _ = strconv.Atoi(n); !restarted || err != nil || len(id) != len(r.TopicID) || r.N < 1 {
		return Restarts{}, note
	}
	copy(r.TopicID[:], id)
	return r, claim
}

// note is the metadata of a partition's offset.
func (c Claim) note(r Restarts) string {
	if r.N == 0 {
		return c.String()
	}
	return fmt.Sprintf("%s%x %d %s", restartsPrefix, r.TopicID, r.N, c)
}

func (c Claim) String() string {
	if c.Copy.N == 0 {
		return claimPrefix + c.Installation
	}
	return copyPrefix + c.Installation + " " + c.Copy.String()
}

func parseClaim(note string) (c Claim, ok bool) {
	_, note = cutRestarts(note)
	if id, claimed := strings.CutPrefix(note, claimPrefix); claimed {
		return Claim{Installation: id}, true
	}
	rest, claimed := strings.CutPrefix(note, copyPrefix)
	if c.Installation, rest, ok = strings.Cut(rest, " "); !claimed || !ok {
		return Claim{}, false
	}
	var err error
	c.Copy, err = ParseCopy(rest)
	return c, err == nil
}

// ClaimGroup marks the commits under the context, with the restarts of each partition.
func ClaimGroup(ctx context.Context, c Claim, restarts func(topic string, partition int32) Restarts) context.Context {
	return kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for _, t := range req.Topics {
			for p := range t.Partitions {
				note := c.note(restarts(t.Topic, t.Partitions[p].Partition))
				t.Partitions[p].Metadata = &note
			}
		}
		return nil
	})
}

// GroupClaim returns who has claimed a group's offsets of topics; the zero Claim: nobody has.
func GroupClaim(ctx context.Context, client *kgo.Client, group string, topics ...string) (Claim, error) {
	committed, err := GroupOffsets(ctx, client, group, topics...)
	return ClaimOf(committed), err
}

// ClaimOf returns, of two installations, the one that committed the first partition, and of its
// copies the newest.
func ClaimOf(committed map[string]map[int32]Committed) (out Claim) {
	for _, topic := range slices.Sorted(maps.Keys(committed)) {
		for _, part := range slices.Sorted(maps.Keys(committed[topic])) {
			c, claimed := parseClaim(committed[topic][part].Note)
			newer := cmp.Or(cmp.Compare(c.Copy.N, out.Copy.N), cmp.Compare(c.Copy.Name, out.Copy.Name)) > 0
			if claimed && (out.Installation == "" || c.Installation == out.Installation && newer) {
				out = c
			}
		}
	}
	return out
}

// ErrGroupAtWork means that a group has members, and its offsets are not to be taken.
var ErrGroupAtWork = errors.New("the group has members: a scanner has joined it, or Kafka has just come back, and counts those of before for some seconds more; stop all scanners, and try again")

// TakeGroup claims all partitions of topics in a group without members. Offsets and restarts stay.
func TakeGroup(ctx context.Context, client *kgo.Client, group string, c Claim, topics ...string) error {
	fail := func(err error) error { return fmt.Errorf("claiming group %s: %w", group, err) }
	committed, err := GroupOffsets(ctx, client, group, topics...)
	if err != nil {
		return fail(err)
	}
	admin := kadm.NewClient(client)
	listed, err := admin.ListTopics(ctx, topics...)
	if err != nil {
		return fail(err)
	}
	offsets := kadm.Offsets{}
	for _, t := range listed {
		for part := range t.Partitions {
			was := committed[t.Topic][part]
			offsets.Add(kadm.Offset{Topic: t.Topic, Partition: part, At: was.At, LeaderEpoch: -1, Metadata: c.note(was.Restarts())})
		}
	}
	taken, err := admin.CommitOffsets(ctx, group, offsets)
	if err == nil {
		err = taken.Error()
	}
	if errors.Is(err, kerr.UnknownMemberID) { // Kafka takes commits from members alone
		err = ErrGroupAtWork
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// Committed is a group's offset of a partition, with what the committer noted beside it.
type Committed struct {
	At   int64
	Note string
}

// Restarts returns how often the partition had been restarted by then.
func (c Committed) Restarts() Restarts {
	r, _ := cutRestarts(c.Note)
	return r
}

// GroupOffsets returns what a group has committed of topics. Partitions without a commit and
// missing topics are left out. The topics are asked for by name: an answer for all topics lacks
// those that this user may not see, and does not say so. Any part without an answer is an error.
func GroupOffsets(ctx context.Context, client *kgo.Client, group string, topics ...string) (map[string]map[int32]Committed, error) {
	found, err := describe(ctx, client, false, topics...)
	if err != nil {
		return nil, fmt.Errorf("reading the partitions of %d topics: %w", len(topics), err)
	}
	asked := kmsg.NewOffsetFetchRequestGroup()
	asked.Group, asked.Topics = group, []kmsg.OffsetFetchRequestGroupTopic{} // nil would mean all
	for _, t := range found.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		if t.Topic == nil || errors.Is(err, kerr.UnknownTopicOrPartition) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the partitions of %s: %w", *t.Topic, err)
		}
		topic := kmsg.NewOffsetFetchRequestGroupTopic()
		topic.Topic, topic.TopicID = *t.Topic, t.TopicID
		for _, p := range t.Partitions {
			topic.Partitions = append(topic.Partitions, p.Partition)
		}
		asked.Topics = append(asked.Topics, topic)
	}
	out := map[string]map[int32]Committed{}
	if len(asked.Topics) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Groups = append(req.Groups, asked)
	answer, err := req.RequestWith(ctx, client)
	if err == nil && len(answer.Groups) != 1 {
		err = fmt.Errorf("the answer is about %d groups", len(answer.Groups))
	}
	if err == nil {
		err = kerr.ErrorForCode(answer.Groups[0].ErrorCode)
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking what group %s has committed: %w", group, err)
	}
	for _, t := range answer.Groups[0].Topics {
		of := map[int32]Committed{}
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("asking what group %s has committed of %s/%d: %w", group, t.Topic, p.Partition, err)
			}
			if p.Offset < 0 {
				continue
			}
			c := Committed{At: p.Offset}
			if p.Metadata != nil {
				c.Note = *p.Metadata
			}
			of[p.Partition] = c
		}
		out[t.Topic] = of
	}
	return out, nil
}
