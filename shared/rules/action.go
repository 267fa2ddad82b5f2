package rules

import (
	"time"

	"ganglion.dev/shared/protocol"
)

// Backoff is how long a node whose cycle failed is left alone: Base after the
// first failure, twice as long after each further one, Max at most.
type Backoff struct{ Base, Max time.Duration }

// After is how long to wait after so many failures in a row.
func (b Backoff) After(failures int) time.Duration {
	if failures < 1 {
		return 0
	}
	wait := b.Base
	for range failures - 1 {
		if wait *= 2; wait >= b.Max {
			return b.Max
		}
	}
	return min(wait, b.Max)
}

// LockerAction is what the locker does in one pass.
type LockerAction struct {
	Kind LockerKind
	// Lease is the slot's Lease as observed; of Take, nil where it is to be created.
	Lease *Lease
	Grant protocol.Grant
	// Node is the holder as observed; nil where its object is gone.
	Node *protocol.Node
	// Status is what to write to the node: of Notify, Revoke and Release.
	Status protocol.LockerStatus
	// RemoveNeeds are the need keys that Release takes away in the same write.
	RemoveNeeds []string
	// Failures goes into the Lease with Take.
	Failures int
	// Cap, of Take, is how many slots may be taken. Surplus says that slots beyond
	// it exist, from when it was higher, so that they have to be counted again.
	Cap     int
	Surplus bool
	// Unbacked, of Revoke and Release: no Lease backs the grant. The API server
	// is asked once more before that is believed.
	Unbacked bool
	// Unnoticed, of Release: the node does not say that it has the slot. The API server is
	// asked once more whether it does: an old view of the Lease must not overwrite what a
	// later cycle left on the node.
	Unnoticed bool
	// Elsewhere, of Free: the node is under another grant. A node that was observed
	// before the slot was taken is so too, so the API server is asked once more.
	Elsewhere bool
}

// About is the name of the node that the mutation is about.
func (a *LockerAction) About() string {
	if a.Node != nil {
		return a.Node.Name
	}
	return a.Lease.Holder
}

// LockerKind names a mutation.
type LockerKind string

// What the locker can do.
const (
	// Take takes the slot's Lease for the node and then notifies the node.
	Take LockerKind = "take"
	// Notify writes `granted` to a node that holds the Lease already.
	Notify LockerKind = "notify"
	// Revoke writes `revoked`.
	Revoke LockerKind = "revoke"
	// Release writes `released` and removes the needs that were served.
	Release LockerKind = "release"
	// Settle records in the Lease when its holder was restored.
	Settle LockerKind = "settle"
	// Free empties the slot's Lease.
	Free LockerKind = "free"
	// FreeControlPlane empties the Lease of the control plane.
	FreeControlPlane LockerKind = "free-control-plane"
)

// LockerRequest is one request to the API server that a mutation is made of. Each may
// fail, and then the rest is not sent.
type LockerRequest string

// The requests of the locker's mutations.
const (
	// CountSlots lists the window's Leases, and fails where Cap of them are held.
	CountSlots LockerRequest = "count the slots"
	// FindBacked reads the slot's Lease, and fails where it does not back the grant.
	FindBacked LockerRequest = "find the grant backed"
	// FindUnbacked reads the slot's Lease, and fails where it backs the grant.
	FindUnbacked LockerRequest = "find the grant unbacked"
	// FindHolderGone reads the holder's Node, and fails where it is there.
	FindHolderGone LockerRequest = "find the holder gone"
	// FindElsewhere reads the holder's Node, and fails where it is there and not under
	// another grant.
	FindElsewhere LockerRequest = "find the holder under another grant"
	// WriteSlot writes the slot's Lease where it is still as observed.
	WriteSlot LockerRequest = "write the slot"
	// WriteControlPlane writes the Lease of the control plane where it is still as
	// observed, unless it is held for this grant already.
	WriteControlPlane LockerRequest = "write the Lease of the control plane"
	// WriteNode writes Status to the node where it is still as observed.
	WriteNode LockerRequest = "write the node"
)

// Requests are the requests of the mutation, in their order. The slot is taken before
// the node is told, which was observed before that: the Lease is the truth, and the
// resourceVersion of the notice keeps a locker that was delayed from giving it.
func (a *LockerAction) Requests() []LockerRequest {
	var requests []LockerRequest
	switch a.Kind {
	case Take:
		if a.Surplus {
			requests = append(requests, CountSlots)
		}
		requests = append(requests, WriteSlot)
	case Notify:
		requests = append(requests, FindBacked)
	case Revoke, Release:
		if a.Unbacked {
			requests = append(requests, FindUnbacked)
		}
		if a.Unnoticed {
			requests = append(requests, FindBacked)
		}
		return append(requests, WriteNode)
	case Settle:
		return []LockerRequest{WriteSlot}
	case Free:
		if a.Node == nil {
			requests = append(requests, FindHolderGone)
		}
		if a.Elsewhere {
			requests = append(requests, FindElsewhere)
		}
		return append(requests, WriteSlot)
	case FreeControlPlane:
		return []LockerRequest{WriteControlPlane}
	}
	if a.Node.ControlPlane() {
		requests = append(requests, WriteControlPlane)
	}
	return append(requests, WriteNode)
}
