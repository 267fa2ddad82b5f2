package cases

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/test/history"
	"ganglion.dev/test/sim"
)

func TestC02ASlotsHolderNeverComesBackItKeepsTheSlotAndStalledNamesItThenItReturns(t *testing.T) {
	e := start(t, 2, func(s *spec) { s.Reboot.Timeout.Duration = 3e9 })
	must(t, e.Sim.SetBehavior("node-a", func(b *sim.Behavior) { b.StaysDown = true }))
	e.touch("node-a")
	e.untilPhase("node-a", protocol.PhaseReboot)
	e.touch("node-b")
	e.until("the window to say Stalled and name the node", func() bool {
		w, err := e.Client.Windows().Get(e.ctx, "default", metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, c := range w.Status.Conditions {
			if c.Type == "Stalled" && c.Status == metav1.ConditionTrue && c.Message == "Not back in time: node-a" {
				return w.Status.Reason == "Stalled"
			}
		}
		return false
	})
	e.untilEvent("node-a", kube.EventRebootStalled, "keeps its slot")
	e.never("another node was granted past the cap", 2*time.Second, func() bool { return e.node("node-b").Phase() != protocol.Waiting })
	must(t, e.Sim.Return("node-a"))
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	e.untilReleased("node-b", protocol.OutcomeRebooted)
}

func TestC36TheJobSucceedsAndTheHostNeverWentDownFailedAtItsTimeoutRestoredNoSuccess(t *testing.T) {
	e := start(t, 1, func(s *spec) { s.Reboot.Timeout.Duration = 4e9 }, behaving(sim.Behavior{RebootDoesNothing: true}))
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebootFailed)
	n := e.node("node-a")
	if n.Unschedulable || n.State.Rebooter.Step != protocol.Failed || !e.needed() {
		t.Errorf("unschedulable %v, dispatcher says %q, needs %v", n.Unschedulable, n.State.Rebooter, n.State.Needs)
	}
	e.untilEvent("node-a", kube.EventRebootFailed, "not rebooted within 4s")
	e.until("a second try", func() bool { return e.node("node-a").State.Locker.Failures > 1 })
	must(t, e.Sim.SetBehavior("node-a", func(b *sim.Behavior) { b.RebootDoesNothing = false }))
	e.untilReleased("node-a", protocol.OutcomeRebooted)
}

func TestC36TheRebooterHangsItsJobIsStoppedBeforeTheNodeIsRestored(t *testing.T) {
	e := start(t, 1, func(s *spec) { s.Reboot.Timeout.Duration = 4e9 }, behaving(sim.Behavior{RebootHangs: true}))
	e.touch("node-a")
	e.until("the reboot to have failed", func() bool { return e.node("node-a").State.Rebooter.Step == protocol.Failed })
	for _, p := range e.Sim.Pods("node-a") {
		if p.Labels[protocol.GrantKey] == e.node("node-a").State.Rebooter.Grant.String() && p.Status.Phase == "Running" {
			t.Error("the Job's pod still runs")
		}
	}
	e.untilReleased("node-a", protocol.OutcomeRebootFailed)
}

func TestC37TheJobIsRunAgainAfterTheBootNothingHappensExit0(t *testing.T) {
	e := start(t, 1, nil, behaving(sim.Behavior{RerunPod: true}))
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	e.until("the rebooter to have run again", func() bool {
		h := e.Sim.History("node-a")
		return len(h) > 0 && h[0].Rerun != nil
	})
	if h := e.Sim.History("node-a"); len(h) != 1 || *h[0].Rerun != 0 {
		t.Errorf("%d reboots, the second run ended with exit code %d", len(h), *h[0].Rerun)
	}
}

func TestC38TheNeedSurvivesTheRebootNotAgainBeforeMinRebootIntervalRebootLoopIsReported(t *testing.T) {
	e := start(t, 1, func(s *spec) { s.MinRebootInterval.Duration = 6e9 }, behaving(sim.Behavior{SentinelSurvives: true}))
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	e.untilEvent("node-a", kube.EventRebootLoop, "not again before")
	e.untilWaiting("default", "node-a", "RebootLoop")
	if got := e.Sim.Reboots("node-a"); got != 1 {
		t.Errorf("%d reboots", got)
	}
	must(t, e.Sim.SetBehavior("node-a", func(b *sim.Behavior) { b.SentinelSurvives = false }))
	e.until("the second reboot, after the interval", func() bool {
		return e.Sim.Reboots("node-a") == 2 && e.node("node-a").Phase() == protocol.Idle
	})
	// That it did not come too early is among the promises that are checked.
}

func TestC39TheNodeComesBackNotReadyForAWhileReadyEndsItNotTheBootIDAlone(t *testing.T) {
	e := start(t, 1, nil, behaving(sim.Behavior{NotReadyFor: 3 * time.Second}))
	e.touch("node-a")
	boot := e.node("node-a").BootID
	e.until("the new boot", func() bool { return e.node("node-a").BootID != boot })
	for e.node("node-a").State.Rebooter.Step != protocol.Rebooted {
		if n := e.node("node-a"); n.Ready {
			break
		}
		if n := e.node("node-a"); n.Phase() != protocol.PhaseReboot {
			t.Fatalf("%s while the node is not Ready", n.Phase())
		}
		<-e.History.Changed()
	}
	e.untilReleased("node-a", protocol.OutcomeRebooted)
}

func TestC40ReadyFlapsWithoutANewBootIDDuringRebootingNotAReboot(t *testing.T) {
	e := start(t, 1, func(s *spec) { s.Reboot.Timeout.Duration = 6e9 }, behaving(sim.Behavior{RebootHangs: true}))
	e.touch("node-a")
	e.untilPhase("node-a", protocol.PhaseReboot)
	must(t, e.Sim.FlapReady(e.ctx, "node-a", 3))
	e.untilReleased("node-a", protocol.OutcomeRebootFailed)
	for _, event := range e.History.Events() {
		if n, is := history.Node(event); is && n.State.Rebooter.Step == protocol.Rebooted {
			t.Fatal("rebooted was said of a node that was not")
		}
	}
}

func TestC12TheAPIServerIsAwayWhileARebootedNodeWaitsToBeUncordonedItIsUncordonedAfterwards(t *testing.T) {
	e := start(t, 2, nil, behaving(sim.Behavior{DownTime: 2 * time.Second}))
	e.touch("node-a", "node-b")
	e.until("a host to go down", func() bool { return e.Sim.Down("node-a") || e.Sim.Down("node-b") })
	must(t, e.Cluster.StopAPIServer())
	<-time.After(10 * time.Second)
	must(t, e.Cluster.StartAPIServer(e.ctx))
	e.untilAllRebooted(2)
}
