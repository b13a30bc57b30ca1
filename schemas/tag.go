package schemas

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// ValidTag tells whether text is one tag.
func ValidTag(text string) bool { return tagProblem([]byte(text)) == "" }

// Tags returns each tag of Settings.Tag once.
func Tags(text string) []string {
	if text == "" {
		return nil
	}
	out := strings.Split(text, ",")
	slices.Sort(out)
	return slices.Compact(out)
}

// HasTag tells whether a tag is one of Settings.Tag.
func HasTag(text, tag string) bool { return slices.Contains(Tags(text), tag) }

const tagFix = "write 1 to 4 tags with commas between, each 1 to 64 letters, digits or -_.:"

// tagRejection returns what is wrong with the header. A repeated tag is harmless.
func tagRejection(v []byte) *Rejection {
	tags := bytes.Split(v, []byte(","))
	for _, tag := range tags {
		if problem := tagProblem(tag); problem != "" {
			return bad(hTag, v, problem, tagFix)
		}
	}
	if len(tags) > MaxTags {
		return bad(hTag, v, "has "+strconv.Itoa(len(tags))+" tags", tagFix)
	}
	return nil
}

func tagProblem(tag []byte) string {
	switch {
	case len(tag) == 0:
		return "has an empty tag"
	case len(tag) > MaxTagLen:
		return "has a tag of more than 64 bytes"
	}
	for _, c := range tag {
		if !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'z') && bytes.IndexByte([]byte("-_.:"), c) < 0 {
			return "has a tag with another character"
		}
	}
	return ""
}

// BodyTag reads Settings.Tag alone from a body; "" if there is none.
func BodyTag(b []byte) string {
	if len(b) == 0 || b[0] != bodyVersion {
		return ""
	}
	r := bodyReader{rest: b[1:]}
	r.varint() // length
	r.take(1)  // attributes
	r.varint()
	r.varint()
	r.bytes() // key
	r.bytes() // value
	for left := r.varint(); left > 0 && !r.failed; left-- {
		key, v := r.bytes(), r.bytes()
		switch {
		case r.failed || !bytes.HasPrefix(key, []byte(Prefix)):
			return "" // the settings come first
		case string(key) == HeaderTag:
			return string(v)
		}
	}
	return ""
}
