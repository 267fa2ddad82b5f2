package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"ganglion.dev/shared/protocol"
)

// grant gives every waiting node its reason, and the first one that has none a slot.
func (p *lockerPass) grant() *LockerAction {
	waiting := map[*Window][]*protocol.Node{}
	for _, node := range p.Nodes {
		if node.Err != nil || node.Phase() != protocol.Waiting || p.held[node.Name] != nil {
			continue
		}
		w := owner(p.Windows, node)
		why := p.ineligible(node, w)
		if why.Reason != "" {
			p.report.waits(w, node, why)
			continue
		}
		waiting[w] = append(waiting[w], node)
	}
	var first *LockerAction
	for _, w := range p.Windows {
		nodes := waiting[w]
		sortWaiting(nodes, w.Order)
		for _, node := range nodes {
			why := p.controlPlaneFree(node, protocol.Grant{})
			if why.Reason == "" {
				why = p.capacity(w)
			}
			if why.Reason == "" && first != nil {
				why = Reason{ReasonNoFreeSlot, "is next"}
			}
			if why.Reason == "" {
				if first = p.take(w, node); first != nil {
					continue
				}
				why = Reason{ReasonNoFreeSlot, "no slot is free"}
			}
			p.report.waits(w, node, why)
		}
	}
	return first
}

// ineligible is why a needy node gets no slot, apart from capacity.
func (p *lockerPass) ineligible(node *protocol.Node, w *Window) Reason {
	s := node.State
	switch {
	case len(s.Needs) == 0:
		return Reason{ReasonNoNeed, "nothing says any more that it needs a reboot"}
	case p.Aside[node.Name]:
		return Reason{ReasonRetry, "the last write failed; it is tried again soon"}
	case s.Hold:
		return Reason{ReasonHold, "annotation " + protocol.HoldKey + " is there"}
	case s.Leftover():
		return Reason{ReasonUnfinished, "something of an earlier cycle has not ended: " + leftover(s)}
	case w == nil:
		return Reason{ReasonNoWindow, "no valid window selects it"}
	case w.Suspended:
		return Reason{ReasonSuspended, fmt.Sprintf("window %s is suspended", w.Name)}
	case !node.Ready:
		return Reason{ReasonNotReady, "the node is not Ready"}
	}
	if s.Locker.Step != protocol.Released {
		return Reason{}
	}
	since, last := s.Locker.At, s.Locker
	switch last.Outcome {
	case protocol.OutcomeDrainFailed, protocol.OutcomeRebootFailed:
		if wait := since.Add(p.Backoff.After(last.Failures)).Sub(p.Now); wait > 0 {
			p.report.recheck(wait)
			return Reason{ReasonBackOff, fmt.Sprintf("%s, %d in a row; next try at %s",
				last.Outcome, last.Failures, since.Add(p.Backoff.After(last.Failures)).UTC().Format(time.RFC3339))}
		}
	case protocol.OutcomeRebooted, protocol.OutcomeDone:
		if wait := since.Add(w.MinRebootInterval).Sub(p.Now); wait > 0 {
			p.report.recheck(wait)
			return Reason{ReasonRebootLoop, fmt.Sprintf("still needs a reboot after that of %s; not again before %s",
				since.UTC().Format(time.RFC3339), since.Add(w.MinRebootInterval).UTC().Format(time.RFC3339))}
		}
	}
	return Reason{}
}

func leftover(s protocol.State) string {
	if s.Cordoned() {
		return s.Drainer.String()
	}
	return s.Rebooter.String()
}

// controlPlaneFree is why a node of the control plane has to wait: another one is in
// flight, or not Ready. For any other node there is no such reason.
func (p *lockerPass) controlPlaneFree(node *protocol.Node, g protocol.Grant) Reason {
	if !node.ControlPlane() {
		return Reason{}
	}
	if l := p.ControlPlane; l != nil && l.Held() && (l.Err != nil || l.For != g) {
		return Reason{ReasonControlPlane, fmt.Sprintf("%q of the control plane is in flight", l.Holder)}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Nodes)) {
		other := p.Nodes[name]
		switch {
		case name == node.Name || !other.ControlPlane():
		case !other.Ready:
			return Reason{ReasonControlPlane, fmt.Sprintf("%q of the control plane is not Ready", name)}
		case p.held[name] != nil || other.Err == nil && !other.State.Current().IsZero():
			return Reason{ReasonControlPlane, fmt.Sprintf("%q of the control plane is in flight", name)}
		}
	}
	return Reason{}
}

// capacity is why a window has no slot to give.
func (p *lockerPass) capacity(w *Window) Reason {
	r := p.report.Windows[w.Name]
	used := len(r.InFlight)
	if used >= r.Cap {
		return Reason{ReasonNoFreeSlot, fmt.Sprintf("%d of %d slots are taken", used, r.Cap)}
	}
	if !w.IgnoreUnavailable && used+r.Unavailable >= r.Cap {
		return Reason{ReasonUnavailable, fmt.Sprintf(
			"%d of %d slots are taken, and %d selected nodes are not Ready or in flight of another window", used, r.Cap, r.Unavailable)}
	}
	return Reason{}
}

// take gives the node the first free slot below the cap, and a turn that nobody has
// heard of; nil where there is none. That the index is below the cap bounds the
// nodes in flight whatever else a locker does not know.
func (p *lockerPass) take(w *Window, node *protocol.Node) *LockerAction {
	r := p.report.Windows[w.Name]
	for index := range r.Cap {
		slot := protocol.Slot{Window: w.Name, Index: index}
		lease := p.Leases[slot.String()]
		if lease != nil && lease.Held() {
			continue
		}
		turn := 0
		if lease != nil {
			turn = lease.Turn
		}
		g := protocol.Grant{Slot: slot, Turn: max(turn, p.lastTurn(slot)) + 1}
		return &LockerAction{
			Kind: Take, Lease: lease, Grant: g, Node: node, Failures: node.State.Locker.Failures,
			Status: protocol.LockerStatus{Step: protocol.Granted, Grant: g},
			Cap:    r.Cap, Surplus: p.surplus(w.Name, r.Cap),
		}
	}
	return nil
}

// surplus tells whether a window has slots beyond its cap, taken or not.
func (p *lockerPass) surplus(window string, limit int) bool {
	for _, lease := range p.Leases {
		if lease.Slot.Window == window && lease.Slot.Index >= limit {
			return true
		}
	}
	return false
}

// lastTurn is the last turn of a slot that any node's record names. A Lease that
// was deleted and made again starts at 0, and what is left of its earlier turns
// must not pass for an answer to the new ones.
func (p *lockerPass) lastTurn(slot protocol.Slot) int {
	turn := 0
	for _, node := range p.Nodes {
		for _, g := range []protocol.Grant{node.State.Locker.Grant, node.State.Drainer.Grant, node.State.Rebooter.Grant} {
			if g.Slot == slot {
				turn = max(turn, g.Turn)
			}
		}
	}
	return turn
}

// sortWaiting puts those first that have failed least often, then by the
// window's order, then by name. A need of unknown age counts as the oldest.
func sortWaiting(nodes []*protocol.Node, order Order) {
	age := make(map[*protocol.Node]time.Time, len(nodes))
	if order != ByName {
		for _, n := range nodes {
			age[n] = oldestNeed(n.State.Needs)
		}
	}
	slices.SortFunc(nodes, func(a, b *protocol.Node) int {
		return cmp.Or(
			cmp.Compare(a.State.Locker.Failures, b.State.Locker.Failures),
			age[a].Compare(age[b]),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

func oldestNeed(needs map[string]string) time.Time {
	var oldest time.Time
	first := true
	for _, value := range needs {
		need, _ := protocol.ParseNeed(value)
		if first || need.Since.Before(oldest) {
			oldest, first = need.Since, false
		}
	}
	return oldest
}
