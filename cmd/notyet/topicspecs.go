package main

import (
	"strconv"

	"github.com/notyet/notyet/doctor"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/kafka"
)

// topicSpecs are notyet's own topics as migrate creates them. Delays count from the record's
// timestamp, the broker's, so that a wrong clock of a caller cannot make a task early or late. Any
// program may read the results; the broker's own settings decide about their retention.
func topicSpecs(cfg *config.Config) []kafka.TopicSpec {
	var specs []kafka.TopicSpec
	for _, name := range cfg.OwnTopics() {
		if name == cfg.Wakes.Topic {
			specs = append(specs, wakesSpec(cfg))
			continue
		}
		settings := map[string]string{"message.timestamp.type": "LogAppendTime"}
		if name != cfg.Results.Topic {
			settings["cleanup.policy"] = "delete"
			settings["retention.ms"] = strconv.FormatInt(cfg.Migrate.Retention.Milliseconds(), 10)
			settings["retention.bytes"] = "-1"
		}
		partitions := cfg.Migrate.Partitions
		if name == cfg.Cancels.Topic {
			partitions = 1 // one after the other: a cancel of many leaves the servers to what falls due
		}
		if limits, intake := cfg.Limits(name); intake {
			if largest := doctor.LargestRequest(limits); largest > usualMessage {
				settings["max.message.bytes"] = strconv.Itoa(largest)
			}
		}
		if cfg.Migrate.Replication >= 3 {
			settings["min.insync.replicas"] = "2"
		}
		specs = append(specs, kafka.TopicSpec{Name: name, Partitions: int32(partitions), Replication: int16(cfg.Migrate.Replication), Configs: settings})
	}
	return specs
}

// wakesSpec is the topic for wakes (index.kind mysql). Records are worth nothing after seconds.
func wakesSpec(cfg *config.Config) kafka.TopicSpec {
	return kafka.TopicSpec{Name: cfg.Wakes.Topic, Partitions: 1, Replication: int16(cfg.Migrate.Replication), Configs: map[string]string{
		"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000", "retention.bytes": "268435456", "segment.bytes": "67108864",
		"min.insync.replicas": "1",
	}}
}

// usualMessage is the largest batch of a topic by Kafka's default, in bytes.
const usualMessage = 1_048_588
