// Package watching tests what operators watch with: the alert rules and their runbooks, and the Grafana board. Prometheus's own
// programs read them, and the board is asked of a running pipeline.
package watching
