// Package faultpoint names the places between two effects at which a test lets the program die, fail or stall, to see that
// nothing is lost there. A place goes in; nil comes out, at no cost.
//
// Built with the tag faultpoints, the program reads two variables as it starts. NOTYET_FAULTPOINTS arms places, separated by
// commas: name=kill@3 sends SIGKILL to the process at the third passing, name=stall:10s@1 sleeps, name=error@2x4 answers an
// error at the second passing and the three after it; @1 is what is meant without one. A name that does not exist ends the
// program. NOTYET_FAULT_CLOCK_FILE names a file with the milliseconds by which Clock is off, which may change at any time.
package faultpoint
