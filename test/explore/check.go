package explore

import (
	"fmt"

	"ganglion.dev/test/history"
)

// Invariant is a promise of the protocol, by its name there.
type Invariant = history.Invariant

// The promises that are checked in every state. Cap, No lost slot and Own cordon only are
// about the state, the others about a reboot, a write, or all that can still happen.
const (
	Cap           = history.Cap
	DrainedFirst  = history.DrainedFirst
	AtMostOnce    = history.AtMostOnce
	OwnCordonOnly = history.OwnCordonOnly
	Proof         = history.Proof
	NoLostSlot    = history.NoLostSlot

	Progress Invariant = "Progress"
)

// violation is a promise that a move breaks.
type violation struct {
	invariant Invariant
	text      string
}

// fire checks a reboot, and remembers it.
func (s *state) fire(n int8, j job) {
	node, h := s.nodes[n], &s.hosts[n]
	if h.fired == j.grant {
		s.broken = &violation{AtMostOnce, fmt.Sprintf("%s reboots a second time under %s", nodeName(n), j.grant.real())}
	}
	h.fired = j.grant
	why := ""
	switch {
	case node.current() != j.grant:
		why = "its grant is another"
	case !s.backed(j.grant, n, node.uid):
		why = "no Lease backs that"
	case !node.unschedulable:
		why = "it is schedulable"
	case node.drainer.step != drained || node.drainer.grant != j.grant:
		why = "it is not drained under that grant"
	case h.evictable:
		why = "a pod is on it"
	case node.rebooter.step != rebooting || node.rebooter.grant != j.grant:
		why = "no intent says so"
	default:
		return
	}
	s.broken = &violation{DrainedFirst, fmt.Sprintf("%s reboots under %s, and %s", nodeName(n), j.grant.real(), why)}
}

// check finds a broken promise in a state, given the one before.
func (m *model) check(before, s *state) violation {
	if s.broken != nil {
		return *s.broken
	}
	var inFlight [maxWindows]int
	for n := range int8(m.o.Nodes) {
		node := s.nodes[n]
		if !node.there {
			continue
		}
		if g := node.current(); g.turn != 0 && !s.hosts[n].forged {
			inFlight[g.window]++
			if !s.backed(g, n, node.uid) {
				return violation{NoLostSlot, fmt.Sprintf("%s is under %s, and its slot is free or another's", nodeName(n), g.real())}
			}
		}
		switch {
		case !node.ours() && node.unschedulable != s.hosts[n].foreign:
			return violation{OwnCordonOnly, fmt.Sprintf("%s: unschedulable is %t, and the admin's cordon %t", nodeName(n), node.unschedulable, s.hosts[n].foreign)}
		case node.ours() && node.drainer.foreign && !s.hosts[n].foreign && node.unschedulable:
			return violation{OwnCordonOnly, fmt.Sprintf("%s counts as cordoned by an admin, and is not", nodeName(n))}
		}
		if was := before.nodes[n]; node.rebooter.step == rebooted && was.rebooter.step != rebooted && node.uid == was.uid {
			if was.rebooter.step != rebooting || was.rebooter.boot == s.hosts[n].boot || !node.ready {
				return violation{Proof, fmt.Sprintf("%s counts as rebooted, in %s and Ready %t", nodeName(n), bootID(node.boot), node.ready)}
			}
		}
	}
	for w, count := range inFlight {
		if count > m.o.Cap {
			return violation{Cap, fmt.Sprintf("%d nodes of %s are in flight", count, windowName(int8(w)))}
		}
	}
	return violation{}
}

// done tells whether all that can be done has been: nothing is in flight or half undone,
// and every needy node has a reason to wait that is not ours. A state in which a limit of
// the model was reached counts as done.
func (m *model) done(s *state) bool {
	if s.bound {
		return true
	}
	for w := range m.o.Windows {
		for _, l := range s.leases[w] {
			if l.holder != 0 {
				return false
			}
		}
	}
	open := false
	for _, w := range s.windows {
		open = open || w.there && !w.suspended
	}
	if s.windows[0].there && s.windows[0].suspended {
		open = false // its nodes are its own
	}
	for n := range int8(m.o.Nodes) {
		node := s.nodes[n]
		if s.hosts[n].down {
			return false
		}
		if !node.there {
			continue
		}
		if node.current().turn != 0 || node.ours() || node.rebooter.step == rebooting || !node.ready || node.boot != s.hosts[n].boot {
			return false
		}
		if node.need != 0 && !node.hold && open {
			return false
		}
	}
	return true
}
