package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
)

// checkKafka fails with admin.ErrOtherKafka if the database belongs to another Kafka cluster than the client's.
func checkKafka(ctx context.Context, st *store.Store, client *kgo.Client, moved bool) error {
	ctx, cancel := context.WithTimeout(ctx, command.DialTimeout)
	defer cancel()
	cluster, err := kafka.ClusterID(ctx, client)
	if err != nil || cluster == "" {
		return err
	}
	err = admin.New(st).OnKafka(ctx, cluster, moved)
	if errors.Is(err, admin.ErrOtherKafka) {
		return fmt.Errorf("%w: correct kafka.brokers or mysql.dsn; if the installation has moved to this Kafka, run notyet migrate --kafka-moved", err)
	}
	return err
}

// onKafka returns a part that begins once Kafka has said that it is the installation's: a scanner would take another
// cluster's requests, and a dispatcher would deliver to another cluster's topics.
func (s *service) onKafka(run func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		client, err := kafka.New(s.kafka, s.log)
		if err != nil {
			return err
		}
		defer client.Close()
		for ctx.Err() == nil {
			err := checkKafka(ctx, s.store, client, false)
			if err == nil {
				break
			}
			if errors.Is(err, admin.ErrOtherKafka) {
				return err
			}
			s.log.Warn("looking which Kafka cluster this is failed, trying again: nothing is taken or delivered before", zap.Error(err))
			loop.Rest(ctx, time.Second)
		}
		client.Close()
		return run(ctx)
	}
}

// checkGroup refuses a consumer group whose offsets another installation has committed: its scanners would lose partitions to this one.
// If Kafka does not answer, the scanner starts all the same.
func (s *service) checkGroup() error {
	client, err := kafka.New(s.kafka, s.log)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), command.DialTimeout)
	defer cancel()
	group := s.cfg.Scanner.Group
	owner, err := kafka.GroupOwner(ctx, client, group, append(s.cfg.IntakeNames(), s.cfg.Reports.Topic)...)
	switch {
	case err != nil:
		s.log.Warn("whose the consumer group is, Kafka does not say: the scanner joins it", zap.String("group", group), zap.Error(err))
	case owner != "" && owner != s.installation:
		return fmt.Errorf("the consumer group %s belongs to installation %s, and the database (mysql.dsn) is %s: set scanner.group, intake.topics, reports.topic and results.topic to names of this installation's own; if the other one is gone for good, delete the group", group, owner, s.installation)
	}
	return nil
}
