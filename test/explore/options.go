package explore

import "ganglion.dev/shared/rules"

// Options say what is explored.
type Options struct {
	// Nodes, up to 3, are all needy at first.
	Nodes int
	// Windows, up to 2, select all nodes.
	Windows int
	// Cap is how many nodes each window lets be in flight, up to 2.
	Cap int
	// Lockers, Drainers and Dispatchers, up to 2 of each, act at once.
	Lockers, Drainers, Dispatchers int
	// Turns is how often a slot is taken at most.
	Turns int
	// Lag is how many times a locker goes on with an object that has changed: its watch is
	// behind, or the answer to its own write was lost.
	Lag int
	// Mischief is how many things happen that are nobody's doing here: an admin, a
	// power failure, a Job that does nothing, a need that survives.
	Mischief int
	// Foreign is how many of the nodes an admin has cordoned before.
	Foreign int
	// IgnoreUnavailable is that of the windows.
	IgnoreUnavailable bool
	// Limit is how many states are explored at most.
	Limit int
	// Fault is a fault that is planted, to see that it is found.
	Fault Fault
}

// Fault is a deliberate mistake of a component, for tests of the explorer.
type Fault string

// requests of a locker's mutation, with the planted fault.
func (o *Options) requests(p *lockerPlan) []rules.LockerRequest {
	requests := p.requests()
	switch kind := rules.LockerKind(lockerKinds[p.kind]); {
	case o.Fault == NoticeFirst && kind == rules.Take:
		return []rules.LockerRequest{rules.WriteNode, rules.WriteSlot}
	case o.Fault == BelieveGone && kind == rules.Free:
		return []rules.LockerRequest{rules.WriteSlot}
	case o.Fault == BelieveElsewhere && p.elsewhere:
		return []rules.LockerRequest{rules.WriteSlot}
	}
	return requests
}

// The faults that can be planted.
const (
	// NoticeFirst: the locker tells the node before it takes the slot.
	NoticeFirst Fault = "the locker tells the node before it takes the slot"
	// BelieveGone: the locker frees a slot whose holder its cache does not have.
	BelieveGone Fault = "the locker believes its cache that a holder is gone"
	// BelieveElsewhere: the locker frees a slot whose holder its cache has under another
	// grant.
	BelieveElsewhere Fault = "the locker believes its cache that a holder is under another grant"
	// OverwriteLease: Leases are written whatever they have become.
	OverwriteLease Fault = "Leases are written without their resourceVersion"
	// OverwriteNode: Nodes are written whatever they have become.
	OverwriteNode Fault = "Nodes are written without their resourceVersion"
	// FreeEarly: the slot is freed once the node is restored, before it says `released`.
	FreeEarly Fault = "the locker frees a slot before its node says released"
	// NeverFree: the locker leaves a slot taken whose node has said `released`.
	NeverFree Fault = "the locker never frees a slot"
	// JobFirst: the dispatcher makes the Job before it writes its intent.
	JobFirst Fault = "the dispatcher makes the Job before it writes its intent"
	// FailEarly: `failed` is written while the Job may still act.
	FailEarly Fault = "the dispatcher believes its cache that the Job has ended"
	// NoGuard: the rebooter reboots in whatever boot it finds.
	NoGuard Fault = "the rebooter reboots in any boot"
	// DrainedFromCache: `drained` is written without asking the API server for pods.
	DrainedFromCache Fault = "the drainer believes its cache that nothing is left"
	// TrustNotice: drainer and dispatcher act on the annotation alone.
	TrustNotice Fault = "drainer and dispatcher do not read the Lease"
	// ForgetForeign: the drainer uncordons what an admin had cordoned.
	ForgetForeign Fault = "the drainer forgets who had cordoned the node"
	// BootAlone: a changed boot id is proof, Ready or not.
	BootAlone Fault = "the dispatcher takes a changed boot id alone for a proof"
)

// Faults are all of them.
var Faults = []Fault{
	NoticeFirst, BelieveGone, BelieveElsewhere, OverwriteLease, OverwriteNode, FreeEarly,
	JobFirst, FailEarly, NoGuard, DrainedFromCache, TrustNotice, ForgetForeign, BootAlone, NeverFree,
}
