package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
)

type role int

const (
	intake role = iota
	reports
	results
	cancels
	wakes
	target
)

type topic struct {
	kafka.Topic
	name string
	role role
}

func (t topic) where() string { return "topic " + t.name }

// requests reports whether scanners read the topic: a loss there is final.
func (t topic) requests() bool { return t.role == intake || t.role == reports || t.role == cancels }

// rights follow the list in docs/security.md.
var rights = map[role][]string{intake: {"read", "write"}, reports: {"read"}, results: {"read", "write"}, cancels: {"read", "write"}, wakes: {"read", "write"}, target: {"write"}}

// grant is the fix of a topic hidden from notyet's user.
func (t topic) grant() string { return grant(rights[t.role]...) }

func grant(rights ...string) string {
	var names []string
	for _, r := range rights {
		names = append(names, strings.ToUpper(r[:1])+r[1:])
	}
	return "grant " + strings.Join(names, " and ") + " on it to notyet's user"
}

func (t topic) fix(setting string) string {
	return "kafka-configs.sh --alter --entity-type topics --entity-name " + t.name + " --add-config " + setting
}

// number is a setting as a number; false: unknown.
func (t topic) number(setting string) (int64, bool) {
	n, err := strconv.ParseInt(t.Configs[setting], 10, 64)
	return n, err == nil
}

// ofTopics judges each topic by itself: first access, then settings.
func ofTopics(judge func(Config, topic) []Finding) func(facts) []Finding {
	return func(f facts) []Finding {
		if f.cluster == nil {
			return nil
		}
		var out []Finding
		for _, name := range append(f.Settings.OwnTopics(), f.Targets...) {
			t := topic{Topic: f.cluster.topics[name], name: name, role: target}
			switch _, isIntake := f.Settings.Limits(name); {
			case isIntake:
				t.role = intake
			case name == f.Settings.Reports.Topic:
				t.role = reports
			case name == f.Settings.Results.Topic:
				t.role = results
			case name == f.Settings.Cancels.Topic:
				t.role = cancels
			case name == f.Settings.Wakes.Topic:
				t.role = wakes
			}
			for _, found := range judge(f.Config, t) {
				found.Where = t.where()
				out = append(out, found)
			}
		}
		return out
	}
}

func kafkaVersion(_ Config, k *cluster, where string) []Finding {
	if len(k.versions) == 0 {
		return nil
	}
	return found(where, OK, "speaks the protocol of Kafka "+strings.Join(k.versions, ", "), "")
}

func topicExists(_ Config, t topic) []Finding {
	switch {
	case t.TopicMissing() && t.role == target:
		return found("", Warning, "does not exist, or the user of kafka.sasl may not describe it: its tasks become dead letters", "create it, or grant Write (which includes Describe) on it")
	case t.TopicMissing():
		return found("", Failure, "does not exist, or the user of kafka.sasl may not describe it", "run `notyet migrate`, or "+t.grant())
	case t.Err != nil:
		return found("", Failure, "cannot be looked at: "+oneLine(t.Err), t.grant())
	case t.InSync == 0 && t.Partitions > 0:
		return found("", Failure, "has a partition without a leader", "see to the brokers that hold it")
	}
	return found("", OK, fmt.Sprintf("%d partitions", t.Partitions), "")
}

// settingsShown says why the settings of a topic are not judged.
func settingsShown(_ Config, t topic) []Finding {
	if t.Err != nil || t.ConfigsErr == nil {
		return nil
	}
	return found("", Note, "its settings cannot be looked at: "+oneLine(t.ConfigsErr), "grant DescribeConfigs on it, or run doctor as a user who has it")
}

func cleanup(_ Config, t topic) []Finding {
	policy := t.Configs["cleanup.policy"]
	switch {
	case !strings.Contains(policy, "compact"):
		return nil
	case t.role == wakes: // they are of this minute
		return nil
	case t.requests():
		return found("", Failure, "cleanup.policy is "+policy+": of requests with the same key only the last is kept, and the others are lost if no scanner has read them before", t.fix("cleanup.policy=delete"))
	case t.role == results:
		return found("", Warning, "cleanup.policy is "+policy+": of a task's events only the last is kept, and answers to cancel may be gone before they are read", t.fix("cleanup.policy=delete"))
	}
	return found("", Note, "cleanup.policy is "+policy+": deliveries without a key are refused, and become dead letters", "give its tasks keys")
}

func timestamps(_ Config, t topic) []Finding {
	if kind := t.Configs["message.timestamp.type"]; kind == "" || kind == "LogAppendTime" || !t.requests() {
		return nil
	}
	return found("", Warning, "message.timestamp.type is CreateTime: delays count from the caller's clock, so a wrong one makes tasks early or late", t.fix("message.timestamp.type=LogAppendTime"))
}

func copies(_ Config, t topic) []Finding {
	inSync, known := t.number("min.insync.replicas")
	switch {
	case t.Err != nil || t.Partitions == 0 || t.role == wakes: // a lost wake costs a second
		return nil
	case known && int64(t.Replicas) < inSync:
		return found("", Failure, fmt.Sprintf("min.insync.replicas is %d, and a partition has %d copies: nothing can be written", inSync, t.Replicas), t.fix("min.insync.replicas=1")+", or add copies")
	case known && int64(t.InSync) < inSync:
		return found("", Failure, fmt.Sprintf("a partition has %d copies in sync, and min.insync.replicas is %d: nothing can be written to it", t.InSync, inSync), "see to the brokers that hold the others")
	case t.Replicas < 2:
		return found("", Warning, "has one copy: a broker's disk takes what it holds with it", "add copies with kafka-reassign-partitions.sh; three are usual")
	case known && t.Replicas > 2 && inSync < 2:
		return found("", Warning, "min.insync.replicas is 1: a record that Kafka has acknowledged may be on one disk only", t.fix("min.insync.replicas=2"))
	case t.InSync < t.Replicas:
		return found("", Warning, fmt.Sprintf("a partition has %d of %d copies in sync", t.InSync, t.Replicas), "see to the brokers that hold the others")
	}
	return found("", OK, fmt.Sprintf("%d copies, %d in sync to take a record", t.Replicas, max(inSync, 1)), "")
}

func uncleanElection(_ Config, t topic) []Finding {
	if t.Configs["unclean.leader.election.enable"] != "true" || t.Replicas < 2 || t.role == wakes {
		return nil
	}
	return found("", Warning, "unclean.leader.election.enable is true: a leader that lacks acknowledged records may be elected, and they are lost", t.fix("unclean.leader.election.enable=false"))
}

func retention(c Config, t topic) []Finding {
	if !t.requests() || strings.Contains(t.Configs["cleanup.policy"], "compact") && !strings.Contains(t.Configs["cleanup.policy"], "delete") {
		return nil
	}
	var out []Finding
	if ms, known := t.number("retention.ms"); known && ms >= 0 && ms < c.Settings.Migrate.Retention.Milliseconds() {
		out = append(out, Finding{Level: Warning, Found: fmt.Sprintf("retention.ms is %s, less than migrate.retention (%s): requests are lost if all scanners are down longer, or an older backup of the database is restored", time.Duration(ms)*time.Millisecond, c.Settings.Migrate.Retention),
			Fix: t.fix(fmt.Sprintf("retention.ms=%d", c.Settings.Migrate.Retention.Milliseconds())) + ", or set migrate.retention to what is meant"})
	}
	if bytes, known := t.number("retention.bytes"); known && bytes >= 0 {
		out = append(out, Finding{Level: Warning, Found: fmt.Sprintf("retention.bytes is %d: a flood of requests takes those away that no scanner has read", bytes), Fix: t.fix("retention.bytes=-1")})
	}
	return out
}

func messageSize(c Config, t topic) []Finding {
	limits, isIntake := c.Settings.Limits(t.name)
	most, known := t.number("max.message.bytes")
	if !isIntake || !known {
		return nil
	}
	if need := LargestRequest(limits); most < int64(need) {
		return found("", Note, fmt.Sprintf("max.message.bytes is %d: Kafka refuses the largest requests that intake.max-value-bytes allows, unless they are compressed", most), t.fix(fmt.Sprintf("max.message.bytes=%d", need)))
	}
	return nil
}

// LargestRequest is the size of a batch with an intake's largest request, without compression.
func LargestRequest(l schemas.Limits) int {
	const framing = 8 << 10 // the batch's own 61 bytes, and the lengths of a record with 128 headers
	return l.MaxValueBytes + schemas.MaxKeyBytes + schemas.MaxHeaderBytes + framing
}

// topicRights compares this client's rights with the list in docs/security.md.
func topicRights(_ Config, t topic) []Finding {
	if t.Err != nil || len(t.May) == 0 {
		return nil
	}
	without := map[string]string{"read": "scanners stand", "write": "the API and commands cannot schedule"}
	switch t.role {
	case results:
		without = map[string]string{"read": "every ?wait= ends without its answer", "write": "no event is told"}
	case cancels:
		without["write"] = "nobody can cancel many tasks at once"
	case wakes:
		late := "tasks that are stored late are up to a second late"
		without = map[string]string{"read": late, "write": late}
	case target:
		without = map[string]string{"write": "its tasks become dead letters"}
	}
	var out []Finding
	for _, need := range rights[t.role] {
		if !t.Allowed(need) {
			level := Failure
			if t.role == target || t.role == wakes || (t.role == intake || t.role == cancels) && need == "write" {
				level = Warning
			}
			out = append(out, Finding{Level: level, Found: "this user may not " + need + " it: " + without[need], Fix: grant(need)})
		}
	}
	if len(out) == 0 {
		return found("", OK, "this user may "+strings.Join(rights[t.role], " and ")+" it", "")
	}
	return out
}

func groupRights(c Config, k *cluster, _ string) []Finding {
	where := "group " + c.Settings.Scanner.Group
	switch {
	case k.groupErr != nil:
		return found(where, Warning, "cannot be looked at: "+oneLine(k.groupErr), "try again")
	case !k.mayJoin:
		return found(where, Failure, "this user may not join it: scanners stand", "grant Read on the group (scanner.group) to notyet's user")
	}
	return found(where, OK, "this user may join it", "")
}

// order judges whether requests about one task stand in one partition.
func order(f facts) (out []Finding) {
	if f.cluster == nil {
		return nil
	}
	for name, p := range f.cluster.recent {
		if p.elsewhere > 0 {
			out = append(out, Finding{Where: "topic " + name, Level: Warning,
				Found: fmt.Sprintf("of its newest %d requests, %d are in another partition than Kafka's default partitioner has for their key: with a request of another client, a cancel may come before its schedule", p.all, p.elsewhere),
				Fix:   "set the partitioner of librdkafka (kcat, Python, C, .NET) to murmur2_random, and send all requests about a task with one record key"})
		}
	}
	return out
}

// kafkaClock compares the newest record stamped by a broker with the database's clock. A broker's
// clock behind the others does not show.
func kafkaClock(f facts) []Finding {
	if f.cluster == nil || f.database == nil || f.database.Embedded {
		return nil
	}
	now := time.Now().Add(f.database.Ahead + f.database.Within)
	for _, name := range f.Settings.OwnTopics() {
		t := f.cluster.topics[name]
		if ahead := t.Newest.Sub(now); t.Configs["message.timestamp.type"] == "LogAppendTime" && ahead > clockWarning {
			return found(kafkaAt(f.Config), Warning, fmt.Sprintf("a broker stamped a record of %s at least %s ahead of the database's clock: delays count from there", name, ahead.Round(time.Millisecond)), "let brokers and database keep their time by NTP or chrony")
		}
	}
	return nil
}
