package rules

import (
	"fmt"
	"time"

	"ganglion.dev/shared/protocol"
)

// ControlPlaneLease is the name of the Lease that a node of the control plane
// holds beside its slot: of those never more than one is in flight, whatever the
// windows say. It has no dot, so that it is no slot's name.
const ControlPlaneLease = "control-plane"

// Lease is a slot's Lease, or the one of the control plane.
type Lease struct {
	Name string
	// Slot is the slot that it is the Lease of; of ControlPlaneLease, nothing.
	Slot protocol.Slot
	// Holder is the name of the node that holds it, empty where it is free.
	Holder  string
	NodeUID string
	// Turn is how often the slot was taken.
	Turn int
	// For, of ControlPlaneLease: the grant that it was taken for.
	For protocol.Grant
	// Failures is how many cycles of the holder in a row had failed when it was taken.
	Failures int
	Acquired time.Time
	// Restored is when the locker saw the holder restored, where the window has it settle.
	Restored        time.Time
	ResourceVersion string
	// Err says what of the Lease cannot be read. It counts as held, and nobody acts on it.
	Err error
}

// Held tells whether the slot is taken. One that cannot be read is.
func (l *Lease) Held() bool { return l.Holder != "" || l.Err != nil }

// Grant is the grant that the holder has by this Lease.
func (l *Lease) Grant() protocol.Grant {
	return protocol.Grant{Slot: l.Slot, Turn: l.Turn}
}

// Backs tells whether the Lease agrees that this very node has the grant g. The
// annotation of a node is only the notice: a kubelet can write its own node's.
// The error says what does not agree.
func (l *Lease) Backs(g protocol.Grant, node *protocol.Node) error {
	switch {
	case l == nil:
		return fmt.Errorf("there is no Lease %s", g.Slot)
	case l.Err != nil:
		return l.Err
	case l.Grant() != g:
		return fmt.Errorf("lease %s is at turn %d", l.Name, l.Turn)
	case l.Holder != node.Name:
		return fmt.Errorf("lease %s is held by %q", l.Name, l.Holder)
	case l.NodeUID != node.UID:
		return fmt.Errorf("lease %s is held by the node of UID %q", l.Name, l.NodeUID)
	}
	return nil
}
