package rules

import (
	"cmp"
	"slices"
	"time"

	"ganglion.dev/shared/protocol"
)

// Reason is why a needy node waits: a CamelCase word and a sentence.
type Reason struct{ Reason, Message string }

// The reasons for which a node waits.
const (
	ReasonNoNeed       = "NoNeed"
	ReasonHold         = "Hold"
	ReasonUnfinished   = "Unfinished"
	ReasonNoWindow     = "NoWindow"
	ReasonSuspended    = "Suspended"
	ReasonNotReady     = "NotReady"
	ReasonBackOff      = "BackOff"
	ReasonRebootLoop   = "RebootLoop"
	ReasonControlPlane = "ControlPlane"
	ReasonNoFreeSlot   = "NoFreeSlot"
	ReasonUnavailable  = "Unavailable"
	ReasonRetry        = "Retry"
)

// Report explains what the locker saw: nothing in it is remembered from earlier passes.
type Report struct {
	Windows map[string]*WindowReport
	// Waiting has every needy node without a grant and why it waits.
	Waiting map[string]Reason
	// Problems has what cannot be read, by "node/<name>" or "lease/<name>".
	Problems map[string]error
	// Recheck is when time alone may change the decision; 0: never.
	Recheck time.Duration
}

// WindowReport is the state of one window.
type WindowReport struct {
	Cap      int
	Selected int
	Needy    int
	// Failed is how many selected nodes failed their last cycle.
	Failed int
	// Unavailable is how many selected nodes are not Ready or in flight of another window.
	Unavailable int
	InFlight    []InFlight
	// Waiting is in the order in which the nodes come.
	Waiting []WaitingNode
	Stalled []string
}

// InFlight is a node that holds a slot.
type InFlight struct {
	Node  string
	Grant protocol.Grant
	Phase protocol.Phase
	Since time.Time
}

// WaitingNode is a node that waits for a slot.
type WaitingNode struct {
	Node string
	Reason
}

func newReport(v *LockerView) *Report {
	r := &Report{
		Windows:  map[string]*WindowReport{},
		Waiting:  map[string]Reason{},
		Problems: map[string]error{},
	}
	for _, w := range v.Windows {
		r.Windows[w.Name] = &WindowReport{}
	}
	holder := map[string]string{} // node → window of the slot that it holds
	for _, l := range v.Leases {
		if l.Err == nil && l.Holder != "" {
			holder[l.Holder] = l.Slot.Window
		}
	}
	for _, n := range v.Nodes {
		w := owner(v.Windows, n)
		if w == nil {
			continue
		}
		wr := r.Windows[w.Name]
		wr.Selected++
		if len(n.State.Needs) > 0 {
			wr.Needy++
		}
		if n.State.Locker.Failures > 0 {
			wr.Failed++
		}
		held, is := holder[n.Name]
		if is && held != w.Name || !is && !n.Ready {
			wr.Unavailable++
		}
	}
	for _, w := range v.Windows {
		if w.Invalid == "" {
			r.Windows[w.Name].Cap = w.Cap(r.Windows[w.Name].Selected)
		}
	}
	return r
}

func (r *Report) problem(what string, err error) { r.Problems[what] = err }

// recheck asks for another look after d at the latest.
func (r *Report) recheck(d time.Duration) {
	if r.Recheck == 0 || d < r.Recheck {
		r.Recheck = max(d, time.Millisecond)
	}
}

func (r *Report) waits(w *Window, node *protocol.Node, why Reason) {
	r.Waiting[node.Name] = why
	if w == nil {
		return
	}
	wr := r.Windows[w.Name]
	wr.Waiting = append(wr.Waiting, WaitingNode{node.Name, why})
}

// inFlight counts a held slot for its window. node is nil where it is unknown.
func (r *Report) inFlight(p *lockerPass, lease *Lease, node *protocol.Node) {
	wr := r.Windows[lease.Slot.Window]
	if wr == nil {
		return
	}
	f := InFlight{Node: lease.Holder, Grant: lease.Grant(), Since: lease.Acquired, Phase: protocol.Unreadable}
	if node != nil {
		f.Phase = node.Phase()
	}
	wr.InFlight = append(wr.InFlight, f)
	r.stalled(p, wr, node)
}

// unbacked counts a node that takes itself for granted, until that is undone.
func (r *Report) unbacked(p *lockerPass, g protocol.Grant, node *protocol.Node) {
	if wr := r.Windows[g.Window]; wr != nil {
		wr.InFlight = append(wr.InFlight, InFlight{Node: node.Name, Grant: g, Phase: node.Phase(), Since: p.Now})
		r.stalled(p, wr, node)
	}
}

// stalled notes a node that should have been back by now.
func (r *Report) stalled(p *lockerPass, wr *WindowReport, node *protocol.Node) {
	if node == nil || node.Phase() != protocol.PhaseReboot {
		return
	}
	w := p.window(node.State.Current().Window)
	if w == nil || w.RebootTimeout <= 0 {
		return
	}
	if left := node.State.Rebooter.At.Add(w.RebootTimeout).Sub(p.Now); left > 0 {
		r.recheck(left)
		return
	}
	wr.Stalled = append(wr.Stalled, node.Name)
	slices.SortFunc(wr.Stalled, cmp.Compare)
}

// Phases counts the nodes of each window by phase.
func (r *Report) Phases(v *LockerView) map[string]map[protocol.Phase]int {
	counts := map[string]map[protocol.Phase]int{}
	for _, w := range v.Windows {
		counts[w.Name] = map[protocol.Phase]int{}
	}
	for _, n := range v.Nodes {
		if w := owner(v.Windows, n); w != nil {
			counts[w.Name][n.Phase()]++
		}
	}
	return counts
}
