package zkfake

// Operations of the protocol that the fake supports.
const (
	opCreate       = 1
	opDelete       = 2
	opExists       = 3
	opGetData      = 4
	opSetData      = 5
	opGetChildren  = 8
	opSync         = 9
	opPing         = 11
	opGetChildren2 = 12
	opCheck        = 13
	opMulti        = 14
	opSetAuth      = 100
	opSetWatches   = 101
	opError        = -1 // in a multi's answer
)

// handle carries out one request and writes the body of its answer. The caller holds the lock.
func (s *Server) handle(c *conn, op int32, d *decoder, out *encoder) code {
	switch op {
	case opPing, opSetAuth:
		return ok
	case opSync:
		out.string(d.string())
		return ok
	case opExists, opGetData, opGetChildren, opGetChildren2:
		return s.look(c, op, d, out)
	case opSetWatches:
		return s.setWatches(c, d)
	case opMulti:
		return s.multi(c, d, out)
	}
	return s.change(c, op, d, out)
}

// look answers read requests and sets their watches. Only exists can watch a missing znode.
func (s *Server) look(c *conn, op int32, d *decoder, out *encoder) code {
	path, watch := d.string(), d.bool()
	n, found := s.tree.nodes[path]
	list := op == opGetChildren || op == opGetChildren2
	if watch && (found || op == opExists) {
		if list {
			add(s.watches.children, path, c)
		} else {
			add(s.watches.data, path, c)
		}
	}
	if !found {
		return noNode
	}
	if op == opGetData {
		out.buffer(n.data)
	}
	if list {
		names := s.tree.children(path)
		out.int(int32(len(names)))
		for _, name := range names {
			out.string(name)
		}
	}
	if op != opGetChildren {
		n.stat(out)
	}
	return ok
}

// change answers the requests that a multi may contain.
func (s *Server) change(c *conn, op int32, d *decoder, out *encoder) code {
	path := d.string()
	switch op {
	case opCreate:
		data := d.buffer()
		d.acl()
		flags := d.int()
		if d.err != nil {
			return badArguments
		}
		path, result := s.tree.create(path, data, flags, c.session.id)
		out.string(path)
		return result
	case opDelete:
		return s.tree.delete(path, d.int())
	case opCheck:
		return s.tree.check(path, d.int())
	case opSetData:
		result := s.tree.set(path, d.buffer(), d.int())
		if result == ok {
			s.tree.nodes[path].stat(out)
		}
		return result
	}
	return unimplemented
}

// multi carries out all of its operations or none. If one fails, the answer holds the codes up to
// that one; the request itself counts as answered.
func (s *Server) multi(c *conn, d *decoder, out *encoder) code {
	before := s.tree.clone()
	results := &encoder{}
	failed, count := ok, 0
	for {
		op, done := d.int(), d.bool()
		d.int() // error code, meaningless in a request
		if d.err != nil || done {
			break
		}
		body := &encoder{}
		failed = s.change(c, op, d, body)
		if failed != ok {
			break
		}
		count++
		multiHeader(results, op, false, 0)
		results.p = append(results.p, body.p...)
	}
	if failed != ok || d.err != nil {
		s.tree = before
		results = multiFailure(count, failed)
	}
	out.p = append(out.p, results.p...)
	multiHeader(out, -1, true, -1)
	return ok
}

func multiFailure(passed int, failed code) *encoder {
	e := &encoder{}
	for i := range passed + 1 {
		result := ok
		if i == passed {
			result = failed
		}
		multiHeader(e, opError, false, result)
		e.int(int32(result))
	}
	return e
}

func multiHeader(e *encoder, op int32, done bool, err code) {
	e.int(op)
	e.bool(done)
	e.int(int32(err))
}
