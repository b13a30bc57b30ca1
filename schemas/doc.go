// Package schemas is the public contract as code: Kafka records go in, requests, deliveries,
// reports and events come out, and the other way round.
//
// Every program that talks to notyet through Kafka needs nothing but this contract; programs in Go
// can use this package, or the producer and consumer packages on top of it. The same contract for
// other languages is the AsyncAPI document that AsyncAPI returns; a test keeps the two equal.
//
// Times are Unix milliseconds UTC, rounded up: a task may be late by a fraction of a millisecond,
// never early.
//
//	Decode        intake record   → Request     (scanner)
//	Request.Record  Request       → intake record (callers)
//	EncodeBody    key, value, headers, settings → the bytes that a store keeps per task
//	AppendDelivery  Delivery      → headers of the delivered record (dispatcher)
//	ParseDelivery delivered record → Delivery   (consumers)
//	EncodeReport  Report          → report record (consumers)
//	EncodeEvent   Event           → result record (whoever decides)
//
// The package imports nothing else of notyet.
package schemas
