//go:build !unix

package main

// privateFiles does nothing: files have no mode here.
func privateFiles() {}
