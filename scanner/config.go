package scanner

import (
	"cmp"
	"time"

	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/shards"
)

// Config of a scanner. The zero value works.
type Config struct {
	// Group is the consumer group of the intake partitions. Default "notyet-scanner".
	Group string
	// Installation is the id of the installation, noted with the group's offsets. Default none.
	Installation string
	// Intake are the topics with requests. Default notyet.intake.
	Intake []string
	// Reports is the topic with consumers' reports. Default notyet.reports.
	Reports string
	// Cancels is the topic with cancels of many. Default notyet.cancels.
	Cancels string
	// Read are the topics to read, out of the above. Default all.
	Read []string
	// Until are offsets of partitions from which on CatchUp stores nothing. Default none.
	Until kafka.Offsets
	// Results is the topic for events. Default notyet.results.
	Results string
	// Limits of a request.
	Limits schemas.Limits
	// IntakeLimits replace Limits, by intake topic.
	IntakeLimits map[string]schemas.Limits
	// Quotas bound intake topics, by topic. Default none.
	Quotas map[string]Quota
	// Shards: the installation may have several databases, and Shard is the number of this one. A
	// record of another one is left out. Default: there is one.
	Shards bool
	Shard  int
	// Databases are those that the process reaches: tasks of moved targets may be in another one.
	// Default none.
	Databases func() shards.Databases
	// Window is the near future in the index. Default 2 h.
	Window time.Duration
	// Workers is how many batches are stored at the same time, each on its own connection. A
	// partition is with one worker at a time. Default 4: more do not make the database faster
	// (measured: one connection 28k rows/s, four 50k, limited by its CPU).
	Workers int
	// BatchRecords limits a transaction. Default 2000: about 60 ms of work for the database. The
	// slots are locked during the last few of these.
	BatchRecords int
	// CommitEvery is how often Kafka learns the offsets, for monitors. Default 1 s; below 0: never.
	CommitEvery time.Duration
}

func (c Config) withDefaults() Config {
	c.Group = cmp.Or(c.Group, defaults.ScannerGroup)
	c.Reports = cmp.Or(c.Reports, schemas.TopicReports)
	c.Cancels = cmp.Or(c.Cancels, schemas.TopicCancels)
	c.Results = cmp.Or(c.Results, schemas.TopicResults)
	c.Window = cmp.Or(c.Window, defaults.Window)
	c.Workers = cmp.Or(c.Workers, 4)
	c.BatchRecords = cmp.Or(c.BatchRecords, 2000)
	c.CommitEvery = cmp.Or(c.CommitEvery, time.Second)
	if c.Databases == nil {
		c.Databases = func() shards.Databases { return nil }
	}
	if len(c.Intake) == 0 {
		c.Intake = []string{schemas.TopicIntake}
	}
	if len(c.Read) == 0 {
		c.Read = append([]string{c.Reports, c.Cancels}, c.Intake...)
	}
	return c
}
