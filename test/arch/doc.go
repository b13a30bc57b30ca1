// Package arch holds the shape of the tree as tests: which part may import which, and which part is a client library's
// home. The tables are in arrows_test.go; whoever adds a part adds its row there.
package arch
