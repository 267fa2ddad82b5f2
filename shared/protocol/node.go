package protocol

import (
	"errors"
	"fmt"
	"slices"
)

// Node is what the components need to know of a Node object.
type Node struct {
	Name            string
	UID             string
	ResourceVersion string
	Labels          map[string]string
	Unschedulable   bool
	Ready           bool
	BootID          string
	State           State
	// Err says what of ours on the node cannot be read; State is not to be used then.
	Err error
}

// ControlPlane tells whether the node belongs to the control plane.
func (n *Node) ControlPlane() bool {
	_, is := n.Labels[ControlPlaneLabel]
	return is
}

// Phase is the node's phase: that of its State, or Unreadable.
func (n *Node) Phase() Phase {
	if n.Err != nil {
		return Unreadable
	}
	return n.State.Phase()
}

// State is all that the protocol's annotations say of a node.
type State struct {
	// Needs are the need keys with their values.
	Needs map[string]string
	Hold  bool
	// The three statuses; one with an empty Step is absent.
	Locker   LockerStatus
	Drainer  DrainerStatus
	Rebooter RebooterStatus
}

// ParseState reads a node's annotations. The error names every key whose value
// is not one of the protocol's.
func ParseState(annotations map[string]string) (State, error) {
	var s State
	var errs []error
	for key, value := range annotations {
		var err error
		switch {
		case IsNeed(key):
			if s.Needs == nil {
				s.Needs = map[string]string{}
			}
			s.Needs[key] = value
		case key == HoldKey:
			s.Hold = true
		case key == LockerKey:
			s.Locker, err = ParseLockerStatus(value)
		case key == DrainerKey:
			s.Drainer, err = ParseDrainerStatus(value)
		case key == RebooterKey:
			s.Rebooter, err = ParseRebooterStatus(value)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("annotation %s: %w", key, err))
		}
	}
	if errs != nil {
		slices.SortFunc(errs, func(a, b error) int {
			if a.Error() < b.Error() {
				return -1
			}
			return 1
		})
		return State{}, errors.Join(errs...)
	}
	return s, nil
}

// Current is the grant that the node is under: the one that the locker granted
// or revoked and has not released; zero where there is none.
func (s State) Current() Grant {
	if s.Locker.Step == Granted || s.Locker.Step == Revoked {
		return s.Locker.Grant
	}
	return Grant{}
}

// DrainerOn is what the drainer says of g: zero where it is silent on it. A
// status that names another grant counts as absent.
func (s State) DrainerOn(g Grant) DrainerStatus {
	if s.Drainer.Grant != g {
		return DrainerStatus{}
	}
	return s.Drainer
}

// RebooterOn is what the dispatcher says of g: zero where it is silent on it.
func (s State) RebooterOn(g Grant) RebooterStatus {
	if s.Rebooter.Grant != g {
		return RebooterStatus{}
	}
	return s.Rebooter
}

// Cordoned tells that the drainer has cordoned the node and not yet undone it,
// under whatever grant.
func (s State) Cordoned() bool {
	return s.Drainer.Step == Cordoned || s.Drainer.Step == Drained
}

// Names tells whether any of the three statuses names g.
func (s State) Names(g Grant) bool {
	return s.Locker.Grant == g || s.Drainer.Grant == g || s.Rebooter.Grant == g
}

// UnfinishedUnder tells that something begun under g has not ended: a cordon, a
// drain or a reboot.
func (s State) UnfinishedUnder(g Grant) bool {
	return s.Cordoned() && s.Drainer.Grant == g ||
		s.Rebooter.Step == Rebooting && s.Rebooter.Grant == g
}

// Leftover tells that something begun under a grant that is not the current one
// has not ended. Such a node is not granted again.
func (s State) Leftover() bool {
	g := s.Current()
	return s.Cordoned() && s.Drainer.Grant != g ||
		s.Rebooter.Step == Rebooting && s.Rebooter.Grant != g
}
