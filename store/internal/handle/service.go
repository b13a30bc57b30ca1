package handle

// Service is a process that reports itself alive.
type Service struct {
	ID      string `gorm:"size:255;serializer:text"`              // names this start of the process
	Kind    string `gorm:"size:16;serializer:text"`               // scanner, dispatcher, all, dev
	Member  string `gorm:"column:owner;size:255;serializer:text"` // of a dispatcher: its name as the owner of slots
	Version string `gorm:"size:64;serializer:text"`
	HTTP    string `gorm:"size:255;serializer:text"` // where it serves
	Started int64  // Unix ms
	Seen    int64  // Unix ms, by the database's clock
	// Databases is how many it knows of mysql.shards. 0: a release in which slots do not change.
	Databases int    `gorm:"column:spreads"`
	Figures   []byte // what it says of its work, at most MaxFigures bytes; empty: nothing
}

// ServiceLease is how long, in ms, a service counts as alive after a report. Three reports fit in.
const ServiceLease = 15_000

// MaxServices is how many services are listed.
const MaxServices = 1000
