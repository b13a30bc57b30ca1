package schemas

import (
	"regexp"
	"sync"
	"time"
	_ "time/tzdata" // zones are the same on machines that have none
)

// zoneName is the form of IANA's names. Package time opens any file that a name leads to, so one
// zone would have any number of names: Europe/./Berlin.
var zoneName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`)

// machineZones are files among IANA's zones on some machines. They mean another zone on another
// machine, or exist on no other, or count leap seconds.
var machineZones = regexp.MustCompile(`(?i)^(local|localtime|posixrules|(posix|right)/.*)$`)

// zones caches at most all zones: package time reads a zone's file each time.
var zones sync.Map

func parseZone(v []byte) (*time.Location, *Rejection) {
	name := string(v)
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || !zoneName.MatchString(name) || machineZones.MatchString(name) {
		return nil, bad(hTimezone, v, "is not a time zone", "write an IANA name such as Europe/Berlin, or UTC")
	}
	zones.Store(name, zone)
	return zone, nil
}
