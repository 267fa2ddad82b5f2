// Package daemon is the start-up plumbing that every daemon shares: flags with
// their environment variables, logs, one HTTP port for metrics and probes, and
// signals. It knows nothing of Kubernetes.
package daemon
