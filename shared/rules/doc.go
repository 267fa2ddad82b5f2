// Package rules holds what each component decides, as pure functions: what was
// observed goes in, what to do comes out. There is no client, no clock and no
// logger in it, so the same code runs in the daemons, in tables of tests and in
// an explorer of interleavings.
//
// A decision is at most one mutation, and every mutation is safe to repeat: it
// carries the resourceVersion of what was observed, so where two components, or
// two replicas of one, decide at the same time, one gets a conflict, observes
// again and decides again.
package rules
