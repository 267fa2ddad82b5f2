package rules

import (
	"slices"
	"testing"

	"ganglion.dev/shared/protocol"
)

func TestWhatTheRequestsOfAMutationAre(t *testing.T) {
	worker := &protocol.Node{Name: "a"}
	master := &protocol.Node{Name: "a", Labels: map[string]string{protocol.ControlPlaneLabel: ""}}
	for name, c := range map[string]struct {
		action LockerAction
		want   []LockerRequest
	}{
		"a slot is taken before its node is told":                       {LockerAction{Kind: Take, Node: worker}, []LockerRequest{WriteSlot, WriteNode}},
		"beyond the cap the slots are counted first":                    {LockerAction{Kind: Take, Node: worker, Surplus: true}, []LockerRequest{CountSlots, WriteSlot, WriteNode}},
		"a node of the control plane takes that Lease too":              {LockerAction{Kind: Take, Node: master}, []LockerRequest{WriteSlot, WriteControlPlane, WriteNode}},
		"a notice is given again where the Lease backs it":              {LockerAction{Kind: Notify, Node: worker}, []LockerRequest{FindBacked, WriteNode}},
		"and takes the Lease of the control plane":                      {LockerAction{Kind: Notify, Node: master}, []LockerRequest{FindBacked, WriteControlPlane, WriteNode}},
		"a grant is taken back on its node":                             {LockerAction{Kind: Revoke, Node: master}, []LockerRequest{WriteNode}},
		"one without a Lease is looked for once more":                   {LockerAction{Kind: Revoke, Node: worker, Unbacked: true}, []LockerRequest{FindUnbacked, WriteNode}},
		"released is written on the node":                               {LockerAction{Kind: Release, Node: worker}, []LockerRequest{WriteNode}},
		"of a slot that the node knows nothing of, where it is held":    {LockerAction{Kind: Release, Node: worker, Unnoticed: true}, []LockerRequest{FindBacked, WriteNode}},
		"a slot whose node says released is freed":                      {LockerAction{Kind: Free, Node: worker}, []LockerRequest{WriteSlot}},
		"one whose node is gone is freed where the API server says so":  {LockerAction{Kind: Free}, []LockerRequest{FindHolderGone, WriteSlot}},
		"one whose node is under another grant, where that is still so": {LockerAction{Kind: Free, Node: worker, Elsewhere: true}, []LockerRequest{FindElsewhere, WriteSlot}},
		"the time to settle is kept in the Lease":                       {LockerAction{Kind: Settle, Node: worker}, []LockerRequest{WriteSlot}},
		"the Lease of the control plane is freed by itself":             {LockerAction{Kind: FreeControlPlane}, []LockerRequest{WriteControlPlane}},
	} {
		if got := c.action.Requests(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWhatIsAskedOfTheAPIServerOnceMore(t *testing.T) {
	one := []*Window{window("w", 1)}
	action, _ := view(one, []*Lease{held("w.0.2", "a")}, node("a", "x", "", "locker", "granted w.0.1")).Decide()
	if action == nil || action.Kind != Free || !action.Elsewhere {
		t.Errorf("a node that was seen under an earlier turn of the slot: %+v", action)
	}
	action, _ = view(one, []*Lease{held("w.0.1", "a")}, node("a", "x", "", "locker", "released w.0.2 2026-11-01T00:00:00Z outcome=rebooted")).Decide()
	if action == nil || action.Kind != Release || !action.Unnoticed {
		t.Errorf("a node whose record is of a later turn than the Lease that was seen: %+v", action)
	}
}
