// Package callback sends HTTP callbacks. A Request, which is one attempt of one task, goes in. An
// Outcome comes out: delivered, to be tried again, or dead.
//
//	Guard      which URLs this installation calls, at the intake and again at each dial
//	Secrets    the keys of each origin, from a file
//	Sender     signs a request, sends it and judges the answer
//
// A Sender keeps nothing that has to survive. It does not try again by itself: the caller keeps the
// task and decides when its next attempt is due. So a crash loses nothing.
package callback
