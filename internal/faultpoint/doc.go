// Package faultpoint names the places between two effects where a test lets the program die, fail
// or stall, to check for losses. A place's name goes in; nil comes out, at no cost.
//
// Built with the tag faultpoints, the program reads a variable at its start. NOTYET_FAULTPOINTS
// arms places, separated by commas: name=kill@3 sends SIGKILL to the process at the third passing,
// name=stall:10s@1 sleeps, name=error@2x4 returns an error at the second passing and the three
// after it. The default is @1. An unknown name ends the program. internal/machine has the clocks of
// a simulated machine.
package faultpoint
