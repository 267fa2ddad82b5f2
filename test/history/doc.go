// Package history watches a cluster and checks the promises of the node protocol
// on what it saw: every version of every Node, Lease, Job, pod and window, in the
// order in which the API server made them.
//
// Recorder does the watching, Check the checking. Check is pure, so that a history
// can be written down in a test, and a broken promise in it found.
package history
