// Package callback sends HTTP callbacks. A Request, one attempt of one task, goes in. An Outcome
// comes out: delivered, to be tried again, or dead.
//
//	Guard      which URLs this installation calls, at the intake and again at each dial
//	Secrets    the keys of each origin, from a file
//	Sender     signs a request, sends it and judges the answer
//
// A crash loses nothing: a Sender neither keeps tasks nor tries again. The caller keeps each task,
// decides when the next attempt is due, and bounds the requests under way.
package callback
