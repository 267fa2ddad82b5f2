// Package explore searches all that can happen, within bounds, for a broken promise. The
// decisions are those that ship, of ganglion.dev/shared/rules, and so is the order of the
// locker's requests. What the daemons do around them is modelled: caches of any age,
// conflicts, answers that get lost, a crash between any two requests. So are the API
// server, hosts, kubelets, Jobs and admins.
//
//   - state.go has what a state is, convert.go what the rules see of it;
//   - lockers.go, workers.go and world.go have what can happen next;
//   - check.go has the promises;
//   - explore.go searches, and tells how a promise is broken as a story.
package explore
