// Package kafka is the stages' common ground about Kafka. Settings go in; plain kgo clients with
// one set of defaults come out, and topics made on start. An error goes in; the answer to "is it
// the record or the world?" comes out.
package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/internal/wrap"
)

// Config says where Kafka is and how to talk to it. The zero Config is one
// broker on 127.0.0.1:9092 without TLS or authentication.
type Config struct {
	// Brokers are host:port pairs to begin with; the rest of the cluster is
	// discovered. Default 127.0.0.1:9092.
	Brokers []string
	// ClientID is the name in the brokers' logs and quotas. Default "notyet".
	ClientID string
	// TLS, when set, is asked for the configuration of each new connection. Default plain TCP.
	TLS func() *tls.Config
	// SASL is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM. Default none.
	SASL string
	// Credentials are asked for each authentication of a connection. Required with PLAIN and SCRAM.
	Credentials func() (user, password string)
	// Token is asked likewise, and required with OAUTHBEARER. The function may take time, within a
	// bound of its own: see NewTokens.
	Token func(context.Context) (string, error)
	// AWS is asked likewise, required with AWS_MSK_IAM. session is for temporary credentials.
	AWS func() (key, secret, session string)
	// Dial makes connections. Default TCP; a test in virtual time brings its own.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now is the clock for producers' timestamps. Each service sets the database's, so that a wrong
	// clock of this machine does not show in a topic. Default nil: records keep their timestamps,
	// and records without one get this machine's time.
	Now func() time.Time
	// AllowAutoTopicCreation lets an accordingly configured broker create a topic at a look-up. A
	// mistyped target topic then comes into being instead of becoming a dead letter, so:
	// development only. Default false.
	AllowAutoTopicCreation bool

	// Linger is how long a producer waits for a batch to fill. Default 0: a due task is not made
	// later. Under load batches form without lingering, from the arrivals during a request.
	Linger time.Duration
	// MaxBufferedRecords and MaxBufferedBytes bound a producer's buffer; at either bound Produce
	// blocks and TryProduce fails. The library bounds bytes not at all. Default 50 000 records and
	// 256 MiB: a full buffer of records of 5 KiB.
	MaxBufferedRecords int
	MaxBufferedBytes   int
}

func (c Config) withDefaults() Config {
	if len(c.Brokers) == 0 {
		c.Brokers = []string{defaults.Kafka}
	}
	c.ClientID = cmp.Or(c.ClientID, defaults.ClientID)
	c.MaxBufferedRecords = cmp.Or(c.MaxBufferedRecords, 50_000)
	c.MaxBufferedBytes = cmp.Or(c.MaxBufferedBytes, 256<<20)
	return c
}

// New returns a client with only the connection settings of cfg. It does not connect yet. A topic
// that is created anew is produced to, whoever makes the client.
func New(cfg Config, log *zap.Logger, opts ...kgo.Opt) (*kgo.Client, error) {
	base, err := cfg.withDefaults().options(log)
	if err != nil {
		return nil, fmt.Errorf("configuring the kafka client: %w", err)
	}
	forget := &forgetRecreated{log: log}
	client, err := kgo.NewClient(append(append(base, kgo.WithHooks(forget)), opts...)...)
	if err != nil {
		return nil, fmt.Errorf("configuring the kafka client: %w", err)
	}
	forget.client.Store(client)
	return client, nil
}

func (c Config) options(log *zap.Logger) ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.Dialer(c.dialer()),
		kgo.WithLogger(Logger(log)),
	}
	if c.AllowAutoTopicCreation {
		opts = append(opts, kgo.AllowAutoTopicCreation())
	}
	mechanism, err := c.mechanism()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

func (c Config) mechanism() (sasl.Mechanism, error) {
	scrams := func(context.Context) (scram.Auth, error) {
		user, password := c.Credentials()
		return scram.Auth{User: user, Pass: password}, nil
	}
	var out sasl.Mechanism
	given := c.Credentials != nil
	switch c.SASL {
	case "":
		if c.Credentials != nil || c.Token != nil || c.AWS != nil {
			return nil, errors.New("kafka credentials without a SASL mechanism")
		}
		return nil, nil //nolint:nilnil // none is a valid answer
	case "PLAIN":
		out = plain.Plain(func(context.Context) (plain.Auth, error) {
			user, password := c.Credentials()
			return plain.Auth{User: user, Pass: password}, nil
		})
	case "SCRAM-SHA-256":
		out = scram.Sha256(scrams)
	case "SCRAM-SHA-512":
		out = scram.Sha512(scrams)
	case "OAUTHBEARER":
		given = c.Token != nil
		out = oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := c.Token(ctx)
			return oauth.Auth{Token: token}, err
		})
	case "AWS_MSK_IAM":
		given = c.AWS != nil
		out = aws.ManagedStreamingIAM(func(context.Context) (aws.Auth, error) {
			key, secret, session := c.AWS()
			return aws.Auth{AccessKey: key, SecretKey: secret, SessionToken: session}, nil
		})
	default:
		return nil, fmt.Errorf("kafka SASL mechanism %q is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER and AWS_MSK_IAM", c.SASL)
	}
	if !given {
		return nil, errors.New("kafka SASL needs credentials: a user name, a token or an access key")
	}
	return out, nil
}

// pingNext is how long a ping waits for one broker before it asks the next one too.
const pingNext = 300 * time.Millisecond

// ErrSignIn means that the brokers refuse the user, the password or the token.
var ErrSignIn = errors.New("sign-in refused (see kafka.sasl)")

// Ping says whether any broker answers, with ErrSignIn if it refuses this client. A lost broker may
// hang, so others are asked beside it.
func Ping(ctx context.Context, client *kgo.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	others := append(client.DiscoveredBrokers(), client.SeedBrokers()...)
	all, one := make(chan error, 1), make(chan error, len(others))
	go func() { all <- client.Ping(ctx) }() // one after the other; it learns of new brokers, too
	tick := time.NewTicker(pingNext)
	defer tick.Stop()
	for {
		select {
		case err := <-all:
			if errors.Is(err, kerr.SaslAuthenticationFailed) {
				return fmt.Errorf("%w: %w", ErrSignIn, err)
			}
			return wrap.Err(err, "pinging kafka")
		case err := <-one:
			if err == nil {
				return nil
			}
		case <-tick.C:
			if len(others) > 0 {
				broker := others[0]
				others = others[1:]
				go func() {
					_, err := broker.Request(ctx, &kmsg.MetadataRequest{Topics: []kmsg.MetadataRequestTopic{}})
					one <- err
				}()
			}
		}
	}
}
