package rules

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"ganglion.dev/shared/protocol"
)

// Order says which of a window's nodes go first.
type Order string

// The orders of the API.
const (
	OldestNeedFirst Order = "OldestNeedFirst"
	ByName          Order = "Name"
)

// Window is what the locker needs to know of a NodesMaintenanceWindow.
type Window struct {
	Name string
	// Invalid says why the window grants nothing; empty where it is valid.
	Invalid  string
	Priority int32
	// Suspended: no new grants, and cycles that have not begun to reboot are
	// revoked. The nodes that it selects are still its own: they do not fall to
	// the next window, which would reboot what somebody meant to pause.
	Suspended bool
	Selector  labels.Selector
	// Cap is how many nodes may be in flight when so many are selected.
	Cap func(selected int) int
	// IgnoreUnavailable: nodes that are not Ready, or in flight of another
	// window, use up no capacity.
	IgnoreUnavailable bool
	Settle            time.Duration
	Order             Order
	MinRebootInterval time.Duration
	// RebootTimeout is when a node that has not come back counts as stalled.
	RebootTimeout time.Duration
}

// Grants tells whether the window may grant at all.
func (w *Window) Grants() bool { return w.Invalid == "" && !w.Suspended }

// sortWindows puts the windows into the order in which they select nodes:
// higher priority first, then name.
func sortWindows(windows []*Window) {
	slices.SortFunc(windows, func(a, b *Window) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
}

// owner is the window that a node belongs to: the first valid one that selects it.
func owner(windows []*Window, node *protocol.Node) *Window {
	for _, w := range windows {
		if w.Invalid == "" && w.Selector.Matches(labels.Set(node.Labels)) {
			return w
		}
	}
	return nil
}
