/*
Package election takes in who is alive (a ZooKeeper ensemble) and how many slots there are (the database), and gives each member
an Assignment: an epoch and the slots to work on. The epoch is what protects the tasks (every claim carries it and the database refuses a stale one); election and
trust make it rare that two members try the same slot, and bound how long a slot goes without one.

# Znodes

	/notyet/members/_c_<guid>-m-<sequence>   a candidate, ephemeral: {"id","instance","started"}
	/notyet/assignment                       {"epoch","members","owners","instances"}; owners[slot] is an index into
	                                         members, instances are the process starts behind them

A member is an id; it may have two candidates for a while (the newer one, and that of a session that has not expired yet),
and counts once. The oldest candidate leads. It watches the members; each other one watches the candidate before its own, and
all watch the assignment.

# Term

A term is one TCP connection, one session and one candidate, and all end together. The client library would reconnect by
itself; it is not allowed to, for three reasons: it runs what is still in its queue under whatever session comes next, it does
not say "expired" while it is cut off, and what it does to set its watches again may fail silently. It also races with itself over
the zxid that it would resume a session by, so none is shown to it (zkconn). A member that loses its
connection goes to the next server, makes a new candidate, and then deletes its own old one. Its id was there all the time, so
nothing is shared anew and its slots stay.

Within a term one goroutine does everything, in rounds: sync with the quorum, read the assignment, read the members, adopt all
of it at once, act. A round is read when a watch fires and at least three times per trust window; watches only make it faster.
The order matters: a member that the adopted assignment names and that is not among the members read after it has died. So
does the sync: a server that has lost its quorum answers reads for a while, for sessions that the quorum has expired.

# Trust

Trusted holds for the trust window W after the last round was asked (not answered) for, by the monotonic clock. The ensemble
counts the session timeout S from the last it heard of us, which is not before that:

	round sent ─────────── W: stop ──────── S: ephemeral goes, others take over
	  0                    2/3 S            S (rounded up to the servers' tick)

So a member has S−W, 1.3 s by default, to finish what it began while trusted. A claim that takes longer is refused by its epoch.
Rounds are W/3 apart and a call has W/3 to be answered: a server that falls silent is given up at 2/3 W at the latest, and the
rest of W is for finding another. If the servers grant less than S, W shrinks in proportion.

S−W is what can be had, not a proof: a ZooKeeper follower reports its clients to its leader every half tick only, so one that
is cut off right after a round may cost its clients up to W/3 and half a tick of S. Epochs are there for that, too.

A session whose member may be trusted still is never closed, only its connection is: the ensemble keeps it until S, as
promised above. It is closed, and its ephemeral goes within milliseconds, after trust was ended first: on leaving, and when the
own candidate is gone anyhow.

# Leading

The leader compares the published assignment with who is alive, by id and process start, and how many slots there are (asked
every W). If they differ it
takes an epoch from the database, computes even shares that move as little as possible, and writes them under two conditions
that the ensemble judges in one step: its own candidate exists, and nobody has written since it read. Newcomers wait 200 ms for
others; a departure does not wait. Questions to the database run beside the rounds.

# What happens when

	a member dies                     its ephemeral goes after S, the leader shares its slots at once
	the leader dies                   the same; the next candidate sees it by its watch, and leads
	a member leaves (ctx ends)        trust ends, session closed, shared anew within milliseconds
	a connection breaks               next server at once; trusted all the time if that takes less than W; nothing moves
	a server accepts and is silent    given up after 2/3 W, next server
	a member is cut off, either way   Trusted is false after W, its slots go to others after S; when healed it joins again
	a member is paused (stop, GC)     on waking its clock says that W is over: untrusted before it does anything but what was
	                                  between a look at Trusted and its claim; that claim fails by its epoch
	a leader is paused in publishing  its write fails: its candidate is gone, or the version has moved
	two members think they lead       one of them does not have the oldest candidate alive; its write fails likewise
	the ensemble is away              all untrusted after W: nobody claims, nothing is taken over; when back, all join again
	the ensemble is wiped             terms end, paths are made again, and the leader publishes under a higher epoch from the
	                                  database, starting from the sharing that it remembers
	the assignment is unreadable      ignored, replaced by the leader
	the database is away              members stay trusted and keep their slots; slots of the dead wait for an epoch
	the database was set back         an epoch that does not rise is refused and the next one taken, until it rises
	a member is started again         its new process start gets a new epoch, though nothing moves; until then it has no slots
	two processes have one id         the later one waits, untrusted, until the earlier one's candidate is gone
	somebody deletes a candidate      its member is untrusted at the next round and joins again

Not covered: an ensemble wiped and a database set back while members keep running. They go on refusing epochs below the one they
have seen; restart them. The znodes are open
to who can connect unless Config.Auth is set: then root and what is below belong to that user alone.
*/
package election
