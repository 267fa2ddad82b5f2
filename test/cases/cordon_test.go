package cases

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ganglion.dev/shared/protocol"
	"ganglion.dev/test/history"
	"ganglion.dev/test/sim"
)

// A node that an admin cordoned beforehand, and how its cycle ends.
func TestC10ANodeThatAnAdminCordonedBeforehandStaysCordoned(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*spec)
		stop    func(*env) // what ends the cycle in mid-drain; nil: nothing
		outcome string
	}{
		"after success": {outcome: protocol.OutcomeRebooted},
		"after a drain that timed out": {
			change:  func(s *spec) { s.Drain.Timeout.Duration = 3e9; no := false; s.Drain.Preflight = &no },
			stop:    func(*env) {},
			outcome: protocol.OutcomeDrainFailed,
		},
		"after revocation": {
			stop:    func(e *env) { e.annotate("node-a", protocol.HoldKey, "") },
			outcome: protocol.OutcomeRevoked,
		},
		"after the window's deletion": {
			stop: func(e *env) {
				must(e.t, e.Client.Windows().Delete(e.ctx, "default", metav1.DeleteOptions{}))
			},
			outcome: protocol.OutcomeRevoked,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, 1, c.change)
			if c.stop != nil {
				e.stubborn("node-a")
			}
			e.cordon("node-a")
			e.touch("node-a")
			if c.stop != nil {
				e.untilPhase("node-a", protocol.Draining)
				c.stop(e)
			}
			e.untilReleased("node-a", c.outcome)
			if !e.node("node-a").Unschedulable {
				t.Error("the node is schedulable")
			}
		})
	}
}

func TestC11TheDrainerIsKilledInMidDrainAndStartedAgainItGoesOn(t *testing.T) {
	e := start(t, 2, nil)
	must(t, e.Sim.AddWorkloads(e.ctx, sim.Workload{Name: "slow", Replicas: 2, StopDelay: "4s"}))
	e.touch("node-a")
	e.untilPhase("node-a", protocol.Draining)
	must(t, e.Daemons["drainer"].Kill())
	must(t, e.Daemons["drainer"].Restart())
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	for _, event := range e.History.Events() {
		if n, is := history.Node(event); is && n.Name == "node-a" && n.State.Drainer.Step == protocol.Restored && n.State.Rebooter.Step != protocol.Rebooted {
			t.Error("restored without a reboot")
		}
	}
}

func TestC11TheDrainerIsKilledInMidDrainAndAnotherGoesOn(t *testing.T) {
	e := start(t, 2, nil)
	e.daemon("drainer", "drainer-2")
	must(t, e.Sim.AddWorkloads(e.ctx, sim.Workload{Name: "slow", Replicas: 2, StopDelay: "4s"}))
	e.touch("node-a")
	e.untilPhase("node-a", protocol.Draining)
	// Whichever it is that has claimed the node.
	claim, err := e.Cluster.Admin().CoordinationV1().Leases(protocol.SystemNamespace).Get(e.ctx, "drain.node-a", metav1.GetOptions{})
	must(t, err)
	must(t, e.Daemons[*claim.Spec.HolderIdentity].Kill())
	e.untilReleased("node-a", protocol.OutcomeRebooted)
}

func TestC13DrainFailsTheNodeIsSchedulableAgainAtOnce(t *testing.T) {
	e := start(t, 1, func(s *spec) { s.Drain.Timeout.Duration = 3e9 })
	e.stubborn("node-a")
	e.touch("node-a")
	e.until("the drain to have failed", func() bool { return e.node("node-a").State.Drainer.Step == protocol.Failed })
	if n := e.node("node-a"); n.Unschedulable {
		t.Error("the node is cordoned after the drain has failed")
	}
	e.untilReleased("node-a", protocol.OutcomeDrainFailed)
}

func TestC15TenNeedyNodesCap1NeverMoreThanOneIsCordoned(t *testing.T) {
	e := start(t, 10, nil)
	e.touchAll(10)
	e.untilAllRebooted(10)
	if _, sum := history.Check(e.History.Events()); sum.MostUnavailable != 1 {
		t.Errorf("%d were cordoned at once", sum.MostUnavailable)
	}
}

func TestC16ABudgetThatNeverAllowsWithPreflightTheNodeIsNotEvenCordoned(t *testing.T) {
	e := start(t, 2, nil)
	must(t, e.Sim.AddWorkloads(e.ctx, sim.Workload{Name: "never", Replicas: 1, MaxUnavailable: "0"}))
	holder := e.nodeOf("never")
	other := map[string]string{"node-a": "node-b", "node-b": "node-a"}[holder]
	e.touch(holder)
	e.untilReleased(holder, protocol.OutcomeDrainFailed)
	e.touch(other)
	e.untilReleased(other, protocol.OutcomeRebooted)
	e.untilEvent(holder, "DrainFailed", "default/never")
	e.untilEvent(holder, "DrainFailed", "disruption budget never")
	for _, event := range e.History.Events() {
		if n, is := history.Node(event); is && n.Name == holder && n.Unschedulable {
			t.Fatal("the node was cordoned")
		}
	}
}

func TestC16ABudgetThatNeverAllowsWithoutPreflightItEndsAtTheTimeoutRestored(t *testing.T) {
	e := start(t, 2, func(s *spec) { s.Drain.Timeout.Duration = 8e9; no := false; s.Drain.Preflight = &no })
	must(t, e.Sim.AddWorkloads(e.ctx, sim.Workload{Name: "never", Replicas: 1, MaxUnavailable: "0"}))
	holder := e.nodeOf("never")
	e.touch(holder)
	e.untilPhase(holder, protocol.Draining)
	e.untilEvent(holder, "DrainBlocked", "disruption budget never")
	e.untilReleased(holder, protocol.OutcomeDrainFailed)
	if e.node(holder).Unschedulable {
		t.Error("the node is still cordoned")
	}
	e.untilEvent(holder, "DrainFailed", "default/never")
	requests, err := e.Cluster.Requests()
	must(t, err)
	evictions := 0
	for _, r := range requests {
		if r.Subresource == "eviction" && r.Code == 429 && len(r.Name) > 5 && r.Name[:5] == "never" {
			evictions++
		}
	}
	// The one of C16 with preflight may be among them, and any try of the back-off.
	if evictions == 0 || evictions > 40 {
		t.Errorf("%d evictions were refused", evictions)
	}
}

// nodeOf is the node that a pod of a workload runs on.
func (e *env) nodeOf(workload string) string {
	e.t.Helper()
	holder := ""
	e.until("workload "+workload+" to run somewhere", func() bool {
		for i := range 20 {
			for _, p := range e.Sim.Pods(name(i)) {
				if p.Labels["app"] == workload {
					holder = p.Spec.NodeName
					return true
				}
			}
		}
		return false
	})
	return holder
}
