// The drainer cordons the nodes that were granted a slot, evicts their pods,
// says when nothing evictable is left, and undoes its cordon when the cycle is
// over, however it ended. It grants nothing and reboots nothing.
//
//   - main.go composes it, drainer.go takes one node at a time and does what
//     rules.DrainerDecide asks for;
//   - drain.go is one drain in progress: its pods and how it stands;
//   - drains.go begins and ends drains, and keeps their claims;
//   - evict.go knows every answer that the eviction API can give;
//   - claim.go shares the nodes between replicas.
package main
