// Package e2e holds the tests that run the whole pipeline: requests go into the intake topic, and
// what arrives on the business topics is compared with them. The same tests run on the embedded
// servers and on real ones.
package e2e
