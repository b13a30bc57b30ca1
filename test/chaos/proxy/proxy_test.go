package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return l.Addr().String()
}

// talker is a client that sends lines and counts the answers.
type talker struct {
	t     *testing.T
	conn  net.Conn
	lines chan string // closed with the connection
}

func talk(t *testing.T, p *Proxy) *talker {
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c := &talker{t, conn, make(chan string, 16)}
	go func() {
		defer close(c.lines)
		for in := bufio.NewScanner(conn); in.Scan(); {
			c.lines <- in.Text()
		}
	}()
	return c
}

func (c *talker) say(line string) {
	_, err := c.conn.Write([]byte(line + "\n"))
	require.NoError(c.t, err)
}

func (c *talker) hears(line string) {
	select {
	case got := <-c.lines:
		require.Equal(c.t, line, got)
	case <-time.After(time.Minute):
		require.Fail(c.t, "nothing came back", line)
	}
}

func (c *talker) hearsNothing() {
	select {
	case got, open := <-c.lines:
		require.Fail(c.t, "something came", "%q %v", got, open)
	case <-time.After(50 * time.Millisecond):
	}
}

func startEcho(t *testing.T) *Proxy {
	p, err := Start(echo(t))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func TestProxyForwards(t *testing.T) {
	p := startEcho(t)
	c := talk(t, p)
	c.say("hello")
	c.hears("hello")
	require.Zero(t, p.Affected())
}

func TestFreezeHoldsBackAndLetsGo(t *testing.T) {
	for _, d := range []Direction{ToServer, ToClient, Both} {
		p := startEcho(t)
		c := talk(t, p)
		p.Freeze(d)
		c.say("hello")
		require.Eventually(t, func() bool { return p.Affected() > 0 }, time.Minute, time.Millisecond)
		c.hearsNothing()
		p.Heal()
		c.hears("hello")
	}
}

func TestDropLosesForGood(t *testing.T) {
	p := startEcho(t)
	c := talk(t, p)
	p.Drop(ToClient)
	c.say("lost")
	require.Eventually(t, func() bool { return p.Affected() > 0 }, time.Minute, time.Millisecond)
	p.Heal() // breaks the connection, whose stream has a hole
	_, open := <-c.lines
	require.False(t, open)
	c = talk(t, p)
	c.say("again")
	c.hears("again")
}

func TestCutRefusesUntilHealed(t *testing.T) {
	p := startEcho(t)
	c := talk(t, p)
	c.say("hello")
	c.hears("hello")
	p.Cut()
	_, open := <-c.lines
	require.False(t, open)
	_, open = <-talk(t, p).lines
	require.False(t, open)
	p.Heal()
	c = talk(t, p)
	c.say("back")
	c.hears("back")
}

func TestDelayHoldsUp(t *testing.T) {
	p := startEcho(t)
	c := talk(t, p)
	p.Delay(30 * time.Millisecond)
	begin := time.Now()
	c.say("slow")
	c.hears("slow")
	require.GreaterOrEqual(t, time.Since(begin), 60*time.Millisecond)
}

// TestKafkaClientsComeThroughTheProxy: clients use the proxy not only for their first connection,
// but for all brokers named in answers.
func TestKafkaClientsComeThroughTheProxy(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(6, "topic"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	p, err := StartKafka(cluster.ListenAddrs()...)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(p.Addr()), kgo.DefaultProduceTopic("topic"), kgo.ConsumerGroup("group"), kgo.ConsumeTopics("topic"))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, client.ProduceSync(ctx, kgo.StringRecord("hello")).FirstErr())
	require.Len(t, client.PollFetches(ctx).Records(), 1)
	brokers, err := kadm.NewClient(client).ListBrokers(ctx)
	require.NoError(t, err)
	var named []string
	for _, b := range brokers {
		named = append(named, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
	}
	require.ElementsMatch(t, strings.Split(p.Via(strings.Join(cluster.ListenAddrs(), ",")), ","), named)
	require.Len(t, named, 3)
}

func TestRetargetLeadsElsewhere(t *testing.T) {
	p := startEcho(t)
	c := talk(t, p)
	c.say("hello")
	c.hears("hello")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p.Retarget(l.Addr().String())
	_, open := <-c.lines
	require.False(t, open)
	talk(t, p)
	other, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, other.Close())
}

// TestRedisClientsComeThroughTheProxy: nodes name each other in lists, redirections and announcements.
func TestRedisClientsComeThroughTheProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	node := l.Addr().String()
	_, port, err := net.SplitHostPort(node)
	require.NoError(t, err)
	require.Len(t, port, 5)
	p, err := StartRedis(node)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	c := talk(t, p)
	server, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	_, own, err := net.SplitHostPort(p.Addr())
	require.NoError(t, err)
	for said, want := range map[string]string{
		":" + port: ":" + own, port: own, "-MOVED 3999 127.0.0.1:" + port: "-MOVED 3999 127.0.0.1:" + own,
		"notyet 127.0.0.1 " + port + " 127.0.0.1 10001": "notyet 127.0.0.1 " + own + " 127.0.0.1 10001",
		"1795600" + port: "1795600" + port, // a number of its own
	} {
		_, err := server.Write([]byte(said + "\r\n"))
		require.NoError(t, err)
		c.hears(want)
	}
}
