//go:build !unix

package main

// privateFiles does nothing where files have no mode.
func privateFiles() {}
