package rules

import (
	"fmt"
	"time"

	"ganglion.dev/shared/protocol"
)

// DrainerKind names what a node asks of the drainer.
type DrainerKind string

// What the drainer can have to do.
const (
	// Nothing: the node is somebody else's turn.
	Nothing DrainerKind = ""
	// Cordon the node and say `cordoned`, in one write.
	Cordon DrainerKind = "cordon"
	// Drain: evict, and say `drained` once nothing evictable is left.
	Drain DrainerKind = "drain"
	// Restore: undo our own cordon, and say `restored`, in one write.
	Restore DrainerKind = "restore"
)

// DrainerStep is what a node asks of the drainer.
type DrainerStep struct {
	Kind  DrainerKind
	Grant protocol.Grant
	// Foreign: the cordon is somebody else's.
	Foreign bool
	// Backed: the step may be done only where the slot's Lease backs the grant.
	// What undoes our own doing needs no permission.
	Backed bool
}

// DrainerDecide tells what the drainer has to do on a node.
func DrainerDecide(node *protocol.Node) DrainerStep {
	if node.Err != nil {
		return DrainerStep{}
	}
	s := node.State
	g := s.Current()
	// First what is left of a cycle that is over: nobody else will undo it.
	if s.Cordoned() && s.Drainer.Grant != g {
		if s.RebooterOn(s.Drainer.Grant).Step == protocol.Rebooting {
			return DrainerStep{}
		}
		return DrainerStep{Kind: Restore, Grant: s.Drainer.Grant, Foreign: s.Drainer.Foreign}
	}
	switch node.Phase() {
	case protocol.PhaseGranted:
		if s.Leftover() {
			return DrainerStep{} // a reboot of an earlier cycle has not ended
		}
		return DrainerStep{Kind: Cordon, Grant: g, Foreign: node.Unschedulable, Backed: true}
	case protocol.Draining, protocol.PhaseDrained:
		if !node.Unschedulable { // somebody has undone the cordon: begin again
			return DrainerStep{Kind: Cordon, Grant: g, Backed: true}
		}
		if s.Drainer.Step == protocol.Cordoned {
			return DrainerStep{Kind: Drain, Grant: g, Foreign: s.Drainer.Foreign, Backed: true}
		}
	case protocol.PhaseRebooted, protocol.PhaseRevoked:
		return DrainerStep{Kind: Restore, Grant: g, Foreign: !s.Cordoned() || s.Drainer.Foreign}
	case protocol.PhaseFailed:
		if s.Cordoned() {
			return DrainerStep{Kind: Restore, Grant: g, Foreign: s.Drainer.Foreign}
		}
	}
	return DrainerStep{}
}

// DrainPolicy is what a window says of draining.
type DrainPolicy struct {
	// Skip: cordon only.
	Skip    bool
	Timeout time.Duration
}

// DrainView is what is left on a node that is being drained.
type DrainView struct {
	Policy DrainPolicy
	// Elapsed is how long the drain has been going on.
	Elapsed time.Duration
	// Left names what is still to leave the node, and what holds it up.
	Left []string
	// Refused says why the drain can never succeed, empty where it can.
	Refused string
}

// DrainOutcome is how a drain stands.
type DrainOutcome string

// How a drain can stand.
const (
	DrainGoesOn DrainOutcome = "goes on"
	DrainDone   DrainOutcome = "done"
	DrainFailed DrainOutcome = "failed"
)

// Decide tells how the drain stands, and why where it failed.
func (v DrainView) Decide() (DrainOutcome, string) {
	switch {
	case v.Policy.Skip:
		return DrainDone, ""
	case v.Refused != "":
		return DrainFailed, v.Refused
	case len(v.Left) == 0:
		return DrainDone, ""
	case v.Elapsed >= v.Policy.Timeout:
		return DrainFailed, fmt.Sprintf("%d pods are left after %s: %s", len(v.Left), v.Policy.Timeout, list(v.Left))
	}
	return DrainGoesOn, ""
}

// list joins the first few of a list.
func list(items []string) string {
	const most = 3
	text := ""
	for i, item := range items {
		if i == most {
			return fmt.Sprintf("%s and %d more", text, len(items)-most)
		}
		if i > 0 {
			text += ", "
		}
		text += item
	}
	return text
}
