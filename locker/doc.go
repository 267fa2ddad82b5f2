// The locker decides who may reboot when: it takes slot Leases for the nodes that
// need a reboot and writes them their grants, takes grants back, and gives the
// slots on when a cycle is over. It touches no spec, no pod and no Job.
//
//   - main.go composes it and elects a leader among its replicas;
//   - locker.go observes, asks rules.LockerView.Decide, acts, one mutation a pass;
//   - act.go makes the mutations;
//   - window.go turns the custom resource into what the rules decide from;
//   - explain.go tells what was decided: Events, the windows' status, metrics.
package main
