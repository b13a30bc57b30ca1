package zkfake

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// code is an error code of the protocol; 0 is none.
type code int32

const (
	ok                      code = 0
	unimplemented           code = -6
	badArguments            code = -8
	noNode                  code = -101
	badVersion              code = -103
	noChildrenForEphemerals code = -108
	nodeExists              code = -110
	notEmpty                code = -111
	sessionExpired          code = -112
)

// Kinds of change, as watchers receive them.
const (
	created         int32 = 1
	deleted         int32 = 2
	dataChanged     int32 = 3
	childrenChanged int32 = 4
)

// Flags of a create.
const (
	flagEphemeral  = 1
	flagSequential = 2
)

type znode struct {
	data           []byte
	czxid, mzxid   int64
	pzxid          int64 // of the last change of its children
	ctime, mtime   int64
	version        int32
	owner          int64 // session of an ephemeral, otherwise 0
	births, living int32 // children ever created (numbers the sequential ones), children now
}

// change is what watchers receive.
type change struct {
	kind int32
	path string
}

// tree holds the znodes by path. Its methods change it and note the changes for the watchers. The
// caller holds the lock.
type tree struct {
	nodes   map[string]*znode
	zxid    int64
	changes []change
}

func newTree() *tree { return &tree{nodes: map[string]*znode{"/": {}}} }

// clone copies the tree, so that a failed multi can be undone.
func (t *tree) clone() *tree {
	c := &tree{nodes: make(map[string]*znode, len(t.nodes)), zxid: t.zxid, changes: slices.Clone(t.changes)}
	for path, n := range t.nodes {
		copied := *n
		c.nodes[path] = &copied
	}
	return c
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

func valid(path string) bool {
	return path == "/" || strings.HasPrefix(path, "/") && !strings.HasSuffix(path, "/") && !strings.Contains(path, "//")
}

func (t *tree) create(path string, data []byte, flags int32, session int64) (string, code) {
	if flags&^(flagEphemeral|flagSequential) != 0 {
		return "", unimplemented
	}
	up, found := t.nodes[parent(path)]
	if !found {
		return "", noNode
	}
	if flags&flagSequential != 0 {
		path += fmt.Sprintf("%010d", up.births)
	}
	switch _, taken := t.nodes[path]; {
	case !valid(path):
		return "", badArguments
	case taken:
		return "", nodeExists
	case up.owner != 0:
		return "", noChildrenForEphemerals
	}
	t.zxid++
	now := time.Now().UnixMilli()
	n := &znode{data: data, czxid: t.zxid, mzxid: t.zxid, pzxid: t.zxid, ctime: now, mtime: now}
	if flags&flagEphemeral != 0 {
		n.owner = session
	}
	t.nodes[path] = n
	up.births, up.living, up.pzxid = up.births+1, up.living+1, t.zxid
	t.changes = append(t.changes, change{created, path}, change{childrenChanged, parent(path)})
	return path, ok
}

func (t *tree) check(path string, version int32) code {
	n, found := t.nodes[path]
	switch {
	case !found:
		return noNode
	case version != -1 && version != n.version:
		return badVersion
	}
	return ok
}

func (t *tree) delete(path string, version int32) code {
	if c := t.check(path, version); c != ok {
		return c
	}
	if path == "/" {
		return badArguments
	}
	if t.nodes[path].living > 0 {
		return notEmpty
	}
	t.zxid++
	delete(t.nodes, path)
	up := t.nodes[parent(path)]
	up.living, up.pzxid = up.living-1, t.zxid
	t.changes = append(t.changes, change{deleted, path}, change{childrenChanged, parent(path)})
	return ok
}

func (t *tree) set(path string, data []byte, version int32) code {
	if c := t.check(path, version); c != ok {
		return c
	}
	t.zxid++
	n := t.nodes[path]
	n.data, n.mzxid, n.mtime, n.version = data, t.zxid, time.Now().UnixMilli(), n.version+1
	t.changes = append(t.changes, change{dataChanged, path})
	return ok
}

// children returns the names below path, sorted.
func (t *tree) children(path string) []string {
	var names []string
	for p := range t.nodes {
		if p != "/" && parent(p) == path {
			names = append(names, p[strings.LastIndexByte(p, '/')+1:])
		}
	}
	slices.Sort(names)
	return names
}

// drop deletes a session's ephemerals.
func (t *tree) drop(session int64) {
	for path, n := range t.nodes {
		if n.owner == session {
			t.delete(path, -1)
		}
	}
}

func (n *znode) stat(e *encoder) {
	e.long(n.czxid)
	e.long(n.mzxid)
	e.long(n.ctime)
	e.long(n.mtime)
	e.int(n.version)
	e.int(2*n.births - n.living) // cversion: births and deaths
	e.int(0)                     // aversion
	e.long(n.owner)
	e.int(int32(len(n.data)))
	e.int(n.living)
	e.long(n.pzxid)
}
