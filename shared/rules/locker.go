package rules

import (
	"maps"
	"slices"
	"time"

	"ganglion.dev/shared/protocol"
)

// LockerView is all that the locker decides from. Its own last writes are in it.
type LockerView struct {
	Nodes map[string]*protocol.Node
	// Windows are all windows, valid or not.
	Windows []*Window
	// Leases are the slots' Leases by name.
	Leases       map[string]*Lease
	ControlPlane *Lease // nil where it does not exist yet
	// Aside are the nodes whose last mutation failed: they are left alone for now,
	// so that the others go on.
	Aside   map[string]bool
	Backoff Backoff
	Now     time.Time
}

// Decide is the locker's decision: the one mutation to make now, nil where there
// is none, and the explanation of everything as it stands.
func (v *LockerView) Decide() (*LockerAction, *Report) {
	sortWindows(v.Windows)
	pass := lockerPass{LockerView: v, report: newReport(v), held: map[string]*Lease{}}
	action := pass.finish()
	if grant := pass.grant(); action == nil {
		action = grant
	}
	return action, pass.report
}

type lockerPass struct {
	*LockerView
	report *Report
	// held maps the names of nodes to the slots that they hold.
	held map[string]*Lease
}

// finish goes on with what is in flight.
func (p *lockerPass) finish() *LockerAction {
	var first *LockerAction
	for _, name := range slices.Sorted(maps.Keys(p.Leases)) {
		lease := p.Leases[name]
		if !lease.Held() {
			continue
		}
		if lease.Err != nil {
			p.report.problem("lease/"+lease.Name, lease.Err)
			p.report.inFlight(p, lease, nil)
			continue
		}
		node := p.Nodes[lease.Holder]
		action := p.advance(lease, node)
		p.report.inFlight(p, lease, node) // also where it is about to be freed: it is not yet
		if action == nil || action.Kind != Free {
			if other := p.held[lease.Holder]; other == nil || node.State.Current() == lease.Grant() {
				p.held[lease.Holder] = lease
			}
		}
		first = p.first(first, action)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Nodes)) {
		first = p.first(first, p.disown(p.Nodes[name]))
	}
	return p.first(first, p.freeControlPlane())
}

// first is the first mutation of a node that is not set aside.
func (p *lockerPass) first(a, b *LockerAction) *LockerAction {
	if a != nil || b == nil || p.Aside[b.About()] {
		return a
	}
	return b
}

// advance decides on one held slot.
func (p *lockerPass) advance(lease *Lease, node *protocol.Node) *LockerAction {
	g := lease.Grant()
	if node == nil || node.UID != lease.NodeUID {
		return &LockerAction{Kind: Free, Lease: lease, Grant: g}
	}
	if node.Err != nil {
		return nil // reported with the other unreadable nodes
	}
	act := func(kind LockerKind, status protocol.LockerStatus) *LockerAction {
		status.Grant = g
		return &LockerAction{Kind: kind, Lease: lease, Grant: g, Node: node, Status: status}
	}
	s := node.State
	if s.Current() == g {
		return p.advanceCurrent(lease, node, act)
	}
	// The Lease is the truth, the annotation only the notice: what was begun
	// under this grant goes on under it, whatever became of the notice.
	if s.UnfinishedUnder(g) {
		return act(Notify, protocol.LockerStatus{Step: protocol.Granted})
	}
	if s.Locker.Step == protocol.Released && s.Locker.Grant == g {
		return act(Free, protocol.LockerStatus{})
	}
	if !s.Current().IsZero() {
		action := act(Free, protocol.LockerStatus{})
		action.Elsewhere = true
		return action
	}
	// Taken, and the node does not say so. Whether the notice was never written, or has
	// been overwritten after the slot's end, nobody can tell, and whoever can still free
	// the slot may be about to: it is not given again. The node says `released` before it
	// goes, or a locker that was delayed before its notice would write it after the slot
	// went elsewhere.
	action := p.release(act, lease, node, protocol.OutcomeRevoked)
	action.Unnoticed = true
	return action
}

type actFunc func(LockerKind, protocol.LockerStatus) *LockerAction

// advanceCurrent decides on a node that is under the grant of its slot.
func (p *lockerPass) advanceCurrent(lease *Lease, node *protocol.Node, act actFunc) *LockerAction {
	s := node.State
	switch node.Phase() {
	case protocol.PhaseGranted, protocol.Draining, protocol.PhaseDrained:
		if why := p.revocation(lease.Slot.Window, node); why != "" {
			return act(Revoke, protocol.LockerStatus{Step: protocol.Revoked, Reason: why})
		}
	case protocol.PhaseRestored:
		if wait := p.settle(lease); wait > 0 {
			p.report.recheck(wait)
			if lease.Restored.IsZero() {
				return act(Settle, protocol.LockerStatus{})
			}
			return nil
		}
		return p.release(act, lease, node, outcome(s))
	case protocol.PhaseFailed:
		if !s.Cordoned() {
			return p.release(act, lease, node, outcome(s))
		}
	}
	return nil
}

// settle is how long the slot of a restored node is still kept.
func (p *lockerPass) settle(lease *Lease) time.Duration {
	w := p.window(lease.Slot.Window)
	if w == nil || w.Settle <= 0 {
		return 0
	}
	if lease.Restored.IsZero() {
		return w.Settle
	}
	return lease.Restored.Add(w.Settle).Sub(p.Now)
}

// outcome is how the cycle of a node that has nothing left to undo ended.
func outcome(s protocol.State) string {
	g := s.Current()
	rebooter := s.RebooterOn(g)
	switch {
	case rebooter.Step == protocol.Failed:
		return protocol.OutcomeRebootFailed
	case s.DrainerOn(g).Step == protocol.Failed:
		return protocol.OutcomeDrainFailed
	case rebooter.Step == protocol.Rebooted && rebooter.Done:
		return protocol.OutcomeDone
	case rebooter.Step == protocol.Rebooted:
		return protocol.OutcomeRebooted
	case s.Locker.Step == protocol.Revoked:
		return protocol.OutcomeRevoked
	}
	return protocol.OutcomeDrainFailed
}

// release writes the record of the cycle. lease is nil where none backs the grant.
func (p *lockerPass) release(act actFunc, lease *Lease, node *protocol.Node, outcome string) *LockerAction {
	status := protocol.LockerStatus{Step: protocol.Released, At: p.Now.UTC().Truncate(time.Second), Outcome: outcome}
	failures := 0
	if lease != nil {
		failures = lease.Failures
	}
	switch outcome {
	case protocol.OutcomeDrainFailed, protocol.OutcomeRebootFailed:
		status.Failures = failures + 1
	case protocol.OutcomeRevoked:
		status.Failures = failures
	}
	action := act(Release, status)
	if outcome == protocol.OutcomeRebooted || outcome == protocol.OutcomeDone {
		action.RemoveNeeds = served(node, outcome)
	}
	return action
}

// served are the need keys that the cycle has answered: all but those that were
// raised in the boot that the reboot led to. Those are needs that survived it.
func served(node *protocol.Node, outcome string) []string {
	var keys []string
	for key, value := range node.State.Needs {
		need, ours := protocol.ParseNeed(value)
		survived := outcome == protocol.OutcomeRebooted && ours && need.BootID == node.BootID
		if !survived {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// revocation is why a grant has to be taken back, empty where it stands. It is
// asked only while the dispatcher is silent.
func (p *lockerPass) revocation(window string, node *protocol.Node) string {
	if node.State.Locker.Step == protocol.Revoked {
		return ""
	}
	w := p.window(window)
	switch {
	case w == nil:
		return "the window was deleted"
	case w.Invalid != "":
		return "the window is invalid: " + w.Invalid
	case w.Suspended:
		return "the window is suspended"
	case len(node.State.Needs) == 0:
		return "the need vanished"
	case node.State.Hold:
		return "the node is on hold"
	}
	return ""
}

// disown undoes what a node takes for a grant and no Lease backs: written by
// hand or by a kubelet, or left over from a Lease that was deleted.
func (p *lockerPass) disown(node *protocol.Node) *LockerAction {
	if node.Err != nil {
		p.report.problem("node/"+node.Name, node.Err)
		return nil
	}
	g := node.State.Current()
	if g.IsZero() || p.Leases[g.Slot.String()].Backs(g, node) == nil {
		return nil
	}
	if lease := p.Leases[g.Slot.String()]; lease != nil && lease.Err != nil {
		return nil // unknown is not absent
	}
	p.report.unbacked(p, g, node)
	act := func(kind LockerKind, status protocol.LockerStatus) *LockerAction {
		status.Grant = g
		return &LockerAction{Kind: kind, Grant: g, Node: node, Status: status, Unbacked: true}
	}
	switch node.Phase() {
	case protocol.PhaseGranted, protocol.Draining, protocol.PhaseDrained:
		return act(Revoke, protocol.LockerStatus{Step: protocol.Revoked, Reason: "no Lease backs the grant"})
	case protocol.PhaseRestored:
		return p.release(act, nil, node, outcome(node.State))
	case protocol.PhaseFailed:
		if !node.State.Cordoned() {
			return p.release(act, nil, node, outcome(node.State))
		}
	}
	return nil
}

// freeControlPlane frees the control plane's Lease once the cycle that it was
// taken for has ended: its slot was given back or has gone on to a later turn.
func (p *lockerPass) freeControlPlane() *LockerAction {
	lease := p.ControlPlane
	if lease == nil || !lease.Held() {
		return nil
	}
	if lease.Err != nil {
		p.report.problem("lease/"+lease.Name, lease.Err)
		return nil
	}
	g := lease.For
	slot := p.Leases[g.Slot.String()]
	node := p.Nodes[lease.Holder]
	var ended bool
	switch {
	case slot == nil:
		ended = node == nil || node.UID != lease.NodeUID || node.Err == nil && node.State.Current() != g
	case slot.Err == nil:
		ended = slot.Turn > g.Turn || slot.Turn == g.Turn && !slot.Held()
	}
	if !ended {
		return nil
	}
	return &LockerAction{Kind: FreeControlPlane, Lease: lease, Grant: g}
}

func (p *lockerPass) window(name string) *Window {
	for _, w := range p.Windows {
		if w.Name == name {
			return w
		}
	}
	return nil
}
