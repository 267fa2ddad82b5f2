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
