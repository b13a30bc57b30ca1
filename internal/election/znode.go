package election

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// paths are the znodes of one installation.
type paths struct {
	root       string
	all        []string // persistent ones, parents first
	members    string   // parent of the candidates: protected ephemeral sequentials
	candidate  string   // what a candidate's name is made from
	assignment string   // the published sharing, one JSON document
}

const candidatePrefix = "m-"

func pathsUnder(root string) paths {
	p := paths{root: root, members: root + "/members", assignment: root + "/assignment"}
	p.candidate = p.members + "/" + candidatePrefix
	for i := 1; i < len(root); i++ {
		if root[i] == '/' {
			p.all = append(p.all, root[:i])
		}
	}
	p.all = append(p.all, root, p.members, p.assignment)
	return p
}

// below reports whether a path is the installation's own: root and what is under it. What is above may have other users.
func (p paths) below(path string) bool { return path == p.root || strings.HasPrefix(path, p.root+"/") }

// memberData is the content of a candidate; it never changes.
type memberData struct {
	ID       string `json:"id"`
	Instance string `json:"instance"` // names the process start
	Started  int64  `json:"started"`  // Unix ms
}

// sharing is the content of the assignment znode. An empty or unreadable one is the zero sharing, epoch 0.
type sharing struct {
	Epoch   int64    `json:"epoch"`
	Members []string `json:"members"`
	Owners  []int    `json:"owners"` // by slot: index into Members
	// Instances are the process starts behind Members. A new one under a known id gets a new epoch, so that it can take the
	// slots and what is left of its predecessor cannot use them.
	Instances []string `json:"instances,omitempty"`
}

// newSharing writes down who owns what; every slot must have an owner among members, which must be sorted.
func newSharing(epoch int64, members []string, owners map[int]string) sharing {
	s := sharing{Epoch: epoch, Members: slices.Clone(members), Owners: make([]int, len(owners))}
	for slot, owner := range owners {
		s.Owners[slot], _ = slices.BinarySearch(members, owner)
	}
	return s
}

func decodeSharing(data []byte) (sharing, error) {
	if len(data) == 0 {
		return sharing{}, nil // created and never written
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

// of is the sharing as one member sees it. What is meant for another process start of its id is not for it.
func (s sharing) of(member, instance string) Assignment {
	a := Assignment{Epoch: s.Epoch, Members: s.Members}
	for slot, i := range s.Owners {
		if s.Members[i] == member && (s.Instances == nil || s.Instances[i] == instance) {
			a.Slots = append(a.Slots, slot)
		}
	}
	return a
}

// candidate is one ephemeral below members.
type candidate struct {
	name  string
	seq   int32
	owner int64 // session
	memberData
}

// sequence reads the number that the server appended. It is an int32 that wraps: after 2^31 candidates it is negative.
func sequence(name string) (int32, bool) {
	i := strings.LastIndex(name, "-"+candidatePrefix)
	if i < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(name[i+1+len(candidatePrefix):], 10, 32)
	return int32(n), err == nil
}

// bySequence orders candidates by age; the difference of wrapped numbers is right as long as those alive are less than
// 2^31 apart.
func bySequence(a, b candidate) int { return int(a.seq - b.seq) }

// instancesOf are the process starts behind ids: of several candidates of one id the oldest's, since the others step back.
func instancesOf(ids []string, cs []candidate) []string {
	out := make([]string, len(ids))
	for _, c := range slices.Backward(slices.SortedFunc(slices.Values(cs), bySequence)) {
		if i, ok := slices.BinarySearch(ids, c.ID); ok {
			out[i] = c.Instance
		}
	}
	return out
}

// memberIDs are the ids behind the candidates, sorted, each once: an id may have a left-over candidate for a while.
func memberIDs(cs []candidate) []string {
	ids := make([]string, 0, len(cs))
	for _, c := range cs {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
