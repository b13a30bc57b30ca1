package election

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

type paths struct {
	root         string
	all          []string // persistent ones, parents first
	installation string   // whose root it is
	members      string   // parent of the candidates: protected ephemeral sequentials
	candidate    string   // prefix of a candidate's name
	assignment   string   // the published distribution, one JSON document
}

const candidatePrefix = "m-"

func pathsUnder(root string) paths {
	p := paths{root: root, installation: root + "/installation", members: root + "/members", assignment: root + "/assignment"}
	p.candidate = p.members + "/" + candidatePrefix
	for i := 1; i < len(root); i++ {
		if root[i] == '/' {
			p.all = append(p.all, root[:i])
		}
	}
	p.all = append(p.all, root, p.members, p.assignment)
	return p
}

// below reports whether a path belongs to the installation: root and everything below it. Znodes
// above the root may have other users.
func (p paths) below(path string) bool { return path == p.root || strings.HasPrefix(path, p.root+"/") }

// memberData is the content of a candidate. Only Failing ever changes.
type memberData struct {
	ID       string `json:"id"`
	Instance string `json:"instance"` // identifies the process start
	Started  int64  `json:"started"`  // Unix ms

	// Installation of the process; absent in earlier versions.
	Installation string `json:"installation,omitempty"`
	// Failing means: the process cannot do the work of an owner at present.
	Failing bool `json:"failing,omitempty"`
	// Can are words for what the process can do; absent in earlier versions.
	Can []string `json:"can,omitempty"`
	// Session is for how many ms a silent member in the database lives. Trust lasts for two thirds.
	Session int64 `json:"session,omitempty"`
}

// sharing is the content of the assignment znode. Unreadable: the zero sharing, with epoch 0.
type sharing struct {
	Epoch   int64    `json:"epoch"`
	Members []string `json:"members"`
	Owners  []int    `json:"owners"` // by slot: index into Members
	// Life of the database with the assignment; "" in ZooKeeper.
	Life string `json:"life,omitempty"`
	// Instances are the process starts of Members. A new start under a known id gets a new epoch,
	// and can take the slots. Remains of the predecessor cannot use them.
	Instances []string `json:"instances,omitempty"`
}

// newSharing encodes the owners. Every slot must have an owner among the sorted members.
func newSharing(epoch int64, members []string, owners map[int]string) sharing {
	s := sharing{Epoch: epoch, Members: slices.Clone(members), Owners: make([]int, len(owners))}
	for slot, owner := range owners {
		s.Owners[slot], _ = slices.BinarySearch(members, owner)
	}
	return s
}

func decodeSharing(data []byte) (sharing, error) {
	if len(data) == 0 {
		return sharing{}, nil // created and not yet written
	}
	var s sharing
	if err := json.Unmarshal(data, &s); err != nil {
		return sharing{}, fmt.Errorf("decoding the assignment: %w", err)
	}
	if s.Epoch <= 0 {
		return sharing{}, fmt.Errorf("decoding the assignment: epoch %d", s.Epoch)
	}
	if s.Instances != nil && len(s.Instances) != len(s.Members) {
		return sharing{}, fmt.Errorf("decoding the assignment: %d instances of %d members", len(s.Instances), len(s.Members))
	}
	for slot, i := range s.Owners {
		if i < 0 || i >= len(s.Members) {
			return sharing{}, fmt.Errorf("decoding the assignment: slot %d is owned by member number %d of %d", slot, i, len(s.Members))
		}
	}
	return s, nil
}

func (s sharing) owners() map[int]string {
	m := make(map[int]string, len(s.Owners))
	for slot, i := range s.Owners {
		m[slot] = s.Members[i]
	}
	return m
}

// of returns one member's view. A share of another process start with the same id does not count.
func (s sharing) of(member, instance string) Assignment {
	a := Assignment{Epoch: s.Epoch, Members: s.Members}
	for slot, i := range s.Owners {
		if s.Members[i] == member && (s.Instances == nil || s.Instances[i] == instance) {
			a.Slots = append(a.Slots, slot)
		}
	}
	return a
}

type candidate struct {
	name  string
	seq   int32
	owner int64 // session; in the database 0
	beat  int64 // when it was read; in ZooKeeper 0
	memberData
}

// sequence returns the server's number: a wrapping int32, negative after 2^31 candidates.
func sequence(name string) (int32, bool) {
	i := strings.LastIndex(name, "-"+candidatePrefix)
	if i < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(name[i+1+len(candidatePrefix):], 10, 32)
	return int32(n), err == nil
}

// bySequence orders candidates by age. The difference of wrapped numbers is right while the living
// ones are less than 2^31 apart.
func bySequence(a, b candidate) int { return int(a.seq - b.seq) }

// instancesOf returns the process starts of ids. Of several candidates with one id the oldest
// counts, since the others withdraw.
func instancesOf(ids []string, cs []candidate) []string {
	out := make([]string, len(ids))
	for _, c := range slices.Backward(slices.SortedFunc(slices.Values(cs), bySequence)) {
		if i, ok := slices.BinarySearch(ids, c.ID); ok {
			out[i] = c.Instance
		}
	}
	return out
}

// memberIDs returns the ids of the candidates, sorted and without repetition: an id may have a
// left-over candidate for a while.
func memberIDs(cs []candidate) []string {
	ids := make([]string, 0, len(cs))
	for _, c := range cs {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
