package zkfake

// watches remembers which connections wait for the next change of a path. A watch fires once and
// ends with its connection.
type watches struct {
	data     map[string]map[*conn]bool // set by getData and exists
	children map[string]map[*conn]bool
}

func newWatches() watches {
	return watches{data: map[string]map[*conn]bool{}, children: map[string]map[*conn]bool{}}
}

func add(m map[string]map[*conn]bool, path string, c *conn) {
	if m[path] == nil {
		m[path] = map[*conn]bool{}
	}
	m[path][c] = true
}

// take returns the connections that wait for a change, each once, and removes their watches.
func (w watches) take(ch change) map[*conn]bool {
	who := map[*conn]bool{}
	if ch.kind != childrenChanged {
		for c := range w.data[ch.path] {
			who[c] = true
		}
		delete(w.data, ch.path)
	}
	if ch.kind == childrenChanged || ch.kind == deleted {
		for c := range w.children[ch.path] {
			who[c] = true
		}
		delete(w.children, ch.path)
	}
	return who
}

func (w watches) forget(c *conn) {
	for _, m := range []map[string]map[*conn]bool{w.data, w.children} {
		for path, who := range m {
			if delete(who, c); len(who) == 0 {
				delete(m, path)
			}
		}
	}
}

func notify(c *conn, ch change) {
	const connected = 3
	e := newPacket()
	e.int(-1) // xid of an event
	e.long(-1)
	e.int(0)
	e.int(ch.kind)
	e.int(connected)
	e.string(ch.path)
	c.send(e.packet())
}

// notify sends the changes that the tree has noted. The caller holds the lock, so an event precedes
// every reply that shows its change.
func (s *Server) notify() {
	for _, ch := range s.tree.changes {
		for c := range s.watches.take(ch) {
			notify(c, ch)
		}
	}
	s.tree.changes = nil
}

// setWatches sets a reconnected client's watches again. Watches whose event the client has missed
// fire at once.
func (s *Server) setWatches(c *conn, d *decoder) code {
	seen, data, exist, children := d.long(), d.strings(), d.strings(), d.strings()
	for _, path := range data {
		n, found := s.tree.nodes[path]
		s.rewatch(c, s.watches.data, path, !found, deleted, found && n.mzxid > seen, dataChanged)
	}
	for _, path := range exist {
		_, found := s.tree.nodes[path]
		s.rewatch(c, s.watches.data, path, found, created, false, 0)
	}
	for _, path := range children {
		n, found := s.tree.nodes[path]
		s.rewatch(c, s.watches.children, path, !found, deleted, found && n.pzxid > seen, childrenChanged)
	}
	return ok
}

func (s *Server) rewatch(c *conn, m map[string]map[*conn]bool, path string, first bool, kind int32, second bool, otherwise int32) {
	switch {
	case first:
		notify(c, change{kind, path})
	case second:
		notify(c, change{otherwise, path})
	default:
		add(m, path, c)
	}
}
