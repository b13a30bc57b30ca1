package doctor

import (
	"fmt"
	"time"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/sendlog"
)

// check is one question about the answers, without findings if its server gave none.
type check struct {
	name  string
	judge func(f facts) []Finding
}

// checks are all questions, in the order of the servers.
var checks = []check{
	{"mysql.version", ofDatabase(databaseVersion)},
	{"mysql.schema", ofDatabase(schema)},
	{"mysql.row-locks", ofDatabase(rowLocks)},
	{"mysql.durable", ofDatabase(durable)},
	{"mysql.writes", ofDatabase(writes)},
	{"mysql.sessions", ofDatabase(sessions)},
	{"mysql.packets", ofDatabase(packets)},
	{"mysql.connections", ofDatabase(connections)},
	{"mysql.rights", ofDatabase(databaseRights)},
	{"mysql.clock", ofDatabase(databaseClock)},
	{"services", ofDatabase(services)},
	{"election", ofDatabase(electionKind)},
	{"index", ofDatabase(indexKind)},

	{"kafka.version", ofCluster(kafkaVersion)},
	{"kafka.topics", ofTopics(topicExists)},
	{"kafka.cleanup", ofTopics(cleanup)},
	{"kafka.timestamps", ofTopics(timestamps)},
	{"kafka.copies", ofTopics(copies)},
	{"kafka.unclean-election", ofTopics(uncleanElection)},
	{"kafka.retention", ofTopics(retention)},
	{"kafka.message-size", ofTopics(messageSize)},
	{"kafka.settings", ofTopics(settingsShown)},
	{"kafka.rights", ofTopics(topicRights)},
	{"kafka.group", ofCluster(groupRights)},
	{"kafka.order", order},
	{"kafka.clock", kafkaClock},

	{"redis.eviction", ofRedis(eviction)},
	{"redis.clock", ofRedis(redisClock)},
	{"zookeeper.members", ofEnsemble(members)},
	{"zookeeper.clock", ofEnsemble(ensembleClock)},
	{"sendlog.disk", ofDisk(sendLogDisk)},
	{"issuer.keys", ofIssuer(issuerKeys)},
	{"issuer.clock", ofIssuer(issuerClock)},
	{"issuer.sign-in", ofIssuer(signIn)},
	{"installation", installation},
	{"settings", settings},
}

// Each of the following judges the answer of one server, if there is one.
var (
	ofDatabase = of(databaseAt, func(f facts) *database { return f.database })
	ofCluster  = of(kafkaAt, func(f facts) *cluster { return f.cluster })
	ofRedis    = of(redisAt, func(f facts) *index.Examined { return f.redis })
	ofEnsemble = of(ensembleAt, func(f facts) *election.Examined { return f.ensemble })
	ofDisk     = of(sendLogAt, func(f facts) *sendlog.Examined { return f.disk })
	ofIssuer   = of(issuerAt, func(f facts) *access.Examined { return f.issuer })
)

func of[A any](where func(Config) string, answer func(facts) *A) func(judge func(Config, *A, string) []Finding) func(facts) []Finding {
	return func(judge func(Config, *A, string) []Finding) func(facts) []Finding {
		return func(f facts) []Finding {
			a := answer(f)
			if a == nil {
				return nil
			}
			return judge(f.Config, a, where(f.Config))
		}
	}
}

// Least difference of clocks for a warning. Time synchronisation keeps the difference far lower.
const clockWarning = 250 * time.Millisecond

// clock judges a clock ahead of this machine's by at least ahead, and at most within more.
func clock(where string, ahead, within time.Duration) []Finding {
	behind := -(ahead + within)
	switch {
	case ahead > clockWarning:
		return found(where, Warning, fmt.Sprintf("its clock is %s ahead of this machine's", ahead.Round(time.Millisecond)), "let both keep their time by NTP or chrony")
	case behind > clockWarning:
		return found(where, Warning, fmt.Sprintf("its clock is %s behind this machine's", behind.Round(time.Millisecond)), "let both keep their time by NTP or chrony")
	}
	return found(where, OK, "its clock and this machine's are at most "+max(ahead+within, -ahead, time.Millisecond).Round(time.Millisecond).String()+" apart", "")
}

func found(where string, level Level, what, fix string) []Finding {
	return []Finding{{Where: where, Level: level, Found: what, Fix: fix}}
}

// installation looks whether the servers' data belong to the installation of the database.
func installation(f facts) []Finding {
	if f.database == nil || f.database.installation == "" {
		return nil
	}
	mine := f.database.installation
	var out []Finding
	compare := func(where, theirs, mine, fix string) {
		if theirs != "" && mine != "" && theirs != mine {
			out = append(out, Finding{Where: where, Level: Failure, Found: "belongs to " + theirs + ", and the database to " + mine, Fix: fix})
		}
	}
	if f.cluster != nil {
		compare("Kafka cluster", f.cluster.id, f.database.kafka, "correct kafka.brokers or mysql.dsn; if the installation has moved to this Kafka, run `notyet migrate --kafka-moved`")
	}
	if f.ensemble != nil {
		compare("zookeeper.root "+f.Election.Root, f.ensemble.Installation, mine, "set zookeeper.root to a path of this installation's own")
	}
	if f.disk != nil {
		compare("sendlog.dir "+f.Settings.SendLog.Dir, f.disk.Installation, mine, "set sendlog.dir to a directory of this installation's own")
	}
	if len(out) == 0 {
		return found("installation "+mine, OK, "no server that was asked belongs to another one", "")
	}
	return out
}

func settings(f facts) (out []Finding) {
	for _, p := range f.Settings.Open() {
		out = append(out, Finding{Where: p.Key, Level: Warning, Found: p.Problem, Fix: p.Fix})
	}
	return out
}
