// Package defaults holds the values of left out settings: nothing goes in, values come out. The
// configuration and the parts of the program use the same values. So a part without a configuration
// behaves like one with an empty configuration.
package defaults

import "time"

// Servers.
const (
	Kafka       = "127.0.0.1:9092"
	ClientID    = "notyet"
	Redis       = "127.0.0.1:6379"
	RedisPrefix = "notyet"

	ZooKeeperRoot  = "/notyet"
	SessionTimeout = 4 * time.Second
	FailingAfter   = 5 * time.Second

	DatabaseConns = 16
	HTTP          = "127.0.0.1:8080"
	HTTPConns     = 1000
)

// Stages.
const (
	Window       = 2 * time.Hour
	ScannerGroup = "notyet-scanner"

	LookAhead          = 400 * time.Millisecond
	BurstLookAhead     = 3 * time.Second
	StageTasks         = 100_000
	StageBytes         = 256 << 20
	DrainTimeout       = 20 * time.Second
	Retention          = 7 * 24 * time.Hour
	UndeliverableAfter = time.Minute
	UnknownTargets     = 100 // of an intake
	MisfireAfter       = time.Minute
	TopTargets         = 20 // that have metrics of their own

	SendLogRetention = 72 * time.Hour
	SendLogBytes     = 64 << 30

	CallsInFlight      = 64 // to one origin
	CallsInFlightTotal = 2048
	CallTimeout        = 5 * time.Minute
)
