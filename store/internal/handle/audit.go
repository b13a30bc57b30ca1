package handle

// Actor is who changes something through the API or the command line.
type Actor struct {
	Who  string // name of the token, or user@host of a command that works on the database itself
	Via  string // ViaAPI or ViaCLI
	User string // user@host of a command that used a token, as it says; "" otherwise
}

// How a change came.
const (
	ViaAPI = "api"
	ViaCLI = "cli"
)

// String is the actor as one name.
func (a Actor) String() string {
	if a.User != "" {
		return a.Who + " (" + a.User + ")"
	}
	return a.Who
}

// AuditEntry is one change in the audit log.
type AuditEntry struct {
	ID int64
	At int64 // Unix ms, by the database's clock
	Actor
	What   string // schedule, cancel, fire, replay, …
	Topic  string // target topic; "": several
	TaskID string // of one task; "": several, or not known yet
	Detail string // a JSON object, see AuditDetail
	Count  int64  // how many were changed; of a request that goes through Kafka, how many it asks to change
}
