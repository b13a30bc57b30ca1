package sim

import (
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/test/zkfake"
)

// Where the plan says so, dispatchers elect through the client of ZooKeeper and a stand-in for its server, as they do in production.
// Otherwise electorate stands for all of that.

const zookeeperAddr = "127.0.0.1:2181"

func (w *world) startZooKeeper() (err error) {
	w.zookeeper, err = zkfake.Start(zkfake.Config{Addr: zookeeperAddr, Listen: w.network.Listen})
	return err
}

// source is a process start's part in the election; ended are the process starts before, which have ended. Close it when it has ended.
func (n *node) source(p *process, start string, ended []string, st *store.Store, log *zap.Logger) (members election.Source, end func(), err error) {
	w, id := n.w, n.name
	if w.several > 0 {
		return watched{Source: n.cell.electorate.member(p, id), p: p, spin: &spin{find: w.find}}, func() {}, nil
	}
	if w.alone {
		roll := st.Roll()
		m, err := election.NewDatabase(w.can(election.Config{MemberID: id, Instance: start, Ended: ended, SessionTimeout: w.session, Slots: st.SlotCount}, st), roll, intake.New(st).Line(), log)
		return watched{Source: m, p: p, spin: &spin{find: w.find}}, roll.Close, err
	}
	members, err = w.apart(p, id, start, ended, st, log)
	return members, func() {}, err
}

// apart is an election that does not go through the database.
func (w *world) apart(p *process, id, start string, ended []string, st *store.Store, log *zap.Logger) (election.Source, error) {
	if w.zookeeper == nil {
		return watched{Source: w.electorate.member(p, id), p: p, spin: &spin{find: w.find}}, nil
	}
	members, err := election.NewZooKeeper(w.can(election.Config{
		Servers: []string{zookeeperAddr}, MemberID: id, Instance: start, Ended: ended, SessionTimeout: w.session, Slots: st.SlotCount,
		Dial: w.through(p, w.electionSrv, time.Second, w.network.DialContext),
	}, st), intake.New(st).Line(), log)
	watch := watched{Source: members, p: p, spin: &spin{find: w.find}}
	if w.truth != nil {
		watch.lie = func(since time.Duration) {
			if slack := 50 * time.Millisecond; since > w.window()+slack {
				w.truth.once("trust", "%s trusts its slots %v after the last answer that it has was written: its trust lasts %v", id, since, w.window())
			}
		}
	}
	return watch, err
}

// watched notices a dispatcher that asks without end.
type watched struct {
	election.Source
	p    *process
	spin *spin
	lie  func(since time.Duration) // called where a member trusts what it may not trust any more
}

func (s watched) Trusted() bool {
	s.spin.turn(s.p.name)
	trusted := s.Source.Trusted()
	s.p.isTold(trusted)
	if trusted && s.lie != nil {
		s.lie(time.Since(s.p.lastHeard()))
	}
	return trusted
}

// moveSlots gives slots to others.
func (w *world) moveSlots(seed uint64) {
	if w.alone {
		return // a member that is paused, or does not reach the database, loses them
	}
	if w.zookeeper == nil {
		w.cells[seed%uint64(len(w.cells))].electorate.shuffle(seed)
		return
	}
	if live := w.zookeeper.Sessions(); len(live) > 0 {
		w.zookeeper.Expire(live[rand.New(rand.NewPCG(seed, 0)).IntN(len(live))])
	}
}
