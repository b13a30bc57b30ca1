/*
Package election distributes the slots among the living dispatchers. The living members (from a
ZooKeeper ensemble, or the database) and the number of slots (from the database) go in; an
Assignment for each member comes out: an epoch and the slots to work on. The epoch protects the
tasks: every claim carries it, and the database refuses a stale one. Election and trust make it rare
that two members try the same slot, and limit how long a slot has no member.

# Znodes

	/notyet/installation                     the id of the installation that the root belongs to
	/notyet/members/_c_<guid>-m-<sequence>   a candidate, ephemeral: {"id","instance","started","installation",
	                                         "failing","can"}
	/notyet/assignment                       {"epoch","members","owners","instances"}; owners[slot] is an index into
	                                         members, instances are the process starts behind them

A member is an id. It may have two candidates for a while (the newer one, and that of a session that
has not expired yet), and counts once. The oldest candidate leads. It watches the members; each
other candidate watches the one before its own, and all watch the assignment.

# In the database

NewDatabase elects through two tables instead of znodes: a row of members stands for an ephemeral
znode, and the row of assignment for the other one. All that follows holds for both, but for these
differences:

	a session          a member changes its beat in each round, at least twice a second. Another one that has
	                   seen no change for S by its own oscillator deletes the row, if it still has that beat. S is
	                   what the row says, so members with other settings may work beside each other
	a watch            there is none: members look twice a second, when a session is about to end, and each 0.1 s
	                   while an assignment is due
	a term             is not bound to a connection. It ends with any failed call, and the next one finds the
	                   row as it was
	the database away  everybody is untrusted after W, and stops; afterwards nothing moves. Between two looks
	                   a member counts S/4 of silence at most, and none before it has written, so the first one
	                   that is back waits for the others
	the database       may have forgotten beats, rows and assignments, of which members still think. So the
	begins another     silence of all is counted anew, rows that are missing count as living for S, the leader
	life               publishes nothing for S, and then publishes anew, under an epoch beyond all forgotten
	                   ones (store.NextEpoch leaves a million out)
	a late statement   an old beat makes nobody a member again; each deletion names a beat; an assignment names
	                   the epoch before it, which comes only once
	its clock          is not asked

The trust window is counted in the same way: from the moment before the beat was sent. Whoever
deletes the row has seen that beat, or a later one, S before. No locks of the server are used: they
end with a connection, and so with a failover. docs/adr/0031 has the reasons.

# Term

A term is one TCP connection, one session and one candidate, and all end together. The client
library would reconnect by itself. It is not allowed to, for three reasons: it runs the requests in
its queue under whatever session comes next, it does not report "expired" while it is cut off, and
setting its watches again may fail silently. It also has a data race over the zxid by which it would
resume a session, so zkconn hides the zxid from it. A member that loses its connection goes to the
next server, makes a new candidate, and then deletes its own old one. Its id exists all the time, so
the distribution does not change and it keeps its slots.

Within a term one goroutine does everything, in rounds: sync with the quorum, read the assignment,
read the members, apply all of it at once, act. A round is read when a watch fires and at least
three times per trust window; watches only make it faster. The order matters: a member that the
assignment names and that is missing among the members read after it has died. The sync matters too:
a server that has lost its quorum answers reads for a while, for sessions that the quorum has
expired.

# Trust

Trusted holds for the trust window W after the last answered round was sent (not answered), by the
monotonic clock and with the time for which the machine was suspended (internal/machine). Time
synchronisation slews that clock by up to a twelfth, and W is two thirds of S. The ensemble counts
the session timeout S from our last message, which is not earlier:

	round sent ─────────── W: stop ──────── S: ephemeral is deleted, others take over
	  0                    2/3 S            S (rounded up to the servers' tick)

So a member has S−W, 1.3 s by default, to finish what it began while trusted. A claim that takes
longer is refused because of its epoch. Rounds are W/3 apart and a call has W/3 to be answered: a
server that stops answering is given up after 2/3 W at the latest, and the rest of W is for finding
another. If the servers grant less than S, W shrinks in proportion.

S−W is an estimate and not a guarantee. A ZooKeeper follower reports its clients to its leader only
every half tick, so a follower that is cut off right after a round may shorten its clients' S by up
to W/3 and half a tick. Epochs protect the tasks in this case too.

While a member may still be trusted, its session is never closed; only its connection is. The
ensemble then keeps the session until S, as shown above. Trust always ends before a session is
closed, which deletes its ephemeral within milliseconds: on leaving, and when the member's candidate
is gone anyway.

# Leading

The leader compares the published assignment with the living members, by id and process start, and
with the number of slots (read every W). If they differ, it allocates an epoch from the database,
computes even shares that move as few slots as possible, and writes them under two conditions that
the ensemble checks in one step: its own candidate exists, and nobody has written since it read. New
members wait 200 ms for others; a departure does not wait. Database queries do not block the rounds.

# What members can do

The database names what members must be able to do now (Config.Required), and a candidate says what
its member can (Config.Can). The leader gives slots to those that can do everything required, or to
all if nobody can. The oldest that can removes the older candidates, so it leads; their members
notice in their next round, and join again behind it. It publishes once they are back, or their trust
has ended. Two that remove at once do no harm: a removal names one candidate and, in the database,
the beat that was read. docs/adr/0044 has the reasons.

# Work

A member reports whether its process can do the work of an owner. One that has failed for
FailingAfter says so in its candidate. When it has then seen another member that does not say so for
twice as long, it leaves, and comes back when it works, after a pause that grows, or when nobody
else works. So a server that one process has lost costs that process its slots, and one that all
have lost moves nothing. docs/adr/0028 has the reasons.

# What happens when

	a member dies                     its ephemeral is deleted after S, the leader reassigns its slots at once
	the leader dies                   the same; the next candidate's watch fires, and it leads
	a member leaves (ctx ends)        trust ends, session closed, slots reassigned within milliseconds
	a connection breaks               next server at once; trusted all the time if that takes less than W; nothing moves
	a server accepts but never answers given up after 2/3 W, next server
	a member is cut off, either way   Trusted is false after W, its slots go to others after S; later it joins again
	a member is paused (stop, GC)     when it continues, W is over and it is untrusted; a claim for which it had already
	                                  checked Trusted fails because of its epoch
	a member's machine is suspended   the same; a hypervisor that stops all clocks of its guest hides it, and only epochs protect
	a leader is paused in publishing  its write fails: its candidate is gone, or the version has moved
	two members believe they lead     one of them lacks the oldest living candidate; its write fails too
	the ensemble is down              all untrusted after W: nobody claims, nothing is taken over; later all join again
	the ensemble loses its data       terms end, paths are created again, and the leader publishes under a higher epoch from
	                                  the database, starting from the distribution that it remembers
	the assignment is unreadable      ignored, replaced by the leader
	the database is down for all      members stay trusted and keep their slots; slots of dead members wait for an epoch
	the database is restored          an epoch that does not rise is refused and the next one allocated, until it rises
	a killed member starts again      it knows that its earlier starts have ended (Config.Ended), removes their candidates, and has its
	                                  slots at once. docs/adr/0034 says which proof it takes
	a member is restarted             its new process start gets a new epoch, though nothing moves; until then it has no slots
	two processes have one id         the later one waits, untrusted, until the earlier one's candidate is gone
	somebody deletes a candidate      its member is untrusted at the next round and joins again
	an older release joins            it gets slots unless something is required that it does not know
	an older release leads then       the oldest member that knows it removes its candidate, and leads
	that member is paused or dies     as a leader; if it was the last that can, the older ones get all slots
	it removes one late               the member has joined again and stays, or joins once more: nothing moves
	a process loses its database      it leaves after 15 s while another member works; its slots move at once
	another installation comes        its member finds the root claimed, and Run fails before it has a candidate

An ensemble may lose its data after the database was set back, both while members keep running. The
database's next epoch is above those of the slots, and owners take their slots anew within a second
of a set-back. Not covered: both within that second, or an assignment that has moved no slot before.
Then members continue to refuse epochs below the highest one they have seen; restart them. Everybody
who can connect can write the znodes unless Config.Auth is set: then only that user can access root
and everything below it.
*/
package election
