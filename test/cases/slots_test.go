package cases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/test/history"
	"ganglion.dev/test/sim"
)

func TestC01TheNodeObjectOfASlotHolderIsDeletedItsSlotServesTheNextNodeAtOnce(t *testing.T) {
	e := start(t, 2, nil)
	must(t, e.Sim.SetBehavior("node-a", func(b *sim.Behavior) { b.StaysDown = true }))
	e.touch("node-a")
	e.untilPhase("node-a", protocol.PhaseReboot)
	e.touch("node-b")
	e.untilWaiting("default", "node-b", "NoFreeSlot")
	must(t, e.Sim.DeleteNode(e.ctx, "node-a"))
	e.untilReleased("node-b", protocol.OutcomeRebooted)
}

func TestC01TheSameNameWithANewUIDInheritsNothing(t *testing.T) {
	e := start(t, 2, nil)
	must(t, e.Sim.SetBehavior("node-a", func(b *sim.Behavior) { b.StaysDown = true }))
	e.touch("node-a")
	e.untilPhase("node-a", protocol.PhaseReboot)
	must(t, e.Sim.SetBehavior("node-a", func(b *sim.Behavior) { b.StaysDown = false }))
	must(t, e.Sim.RecreateNode(e.ctx, "node-a"))
	e.until("the slot to be free", func() bool { return e.slotsHeld() == 0 && e.node("node-a").Name != "" })
	n := e.node("node-a")
	if n.Phase() != protocol.Idle || n.Unschedulable || n.State.Locker.Step != "" {
		t.Errorf("the new node is %s, unschedulable %v, %+v", n.Phase(), n.Unschedulable, n.State)
	}
	e.touch("node-b")
	e.untilReleased("node-b", protocol.OutcomeRebooted)
	e.until("the new node to have a detector", func() bool { p := e.Sim.Detector("node-a"); return p != nil && p.Running() })
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
}

// killedAfter kills a daemon as soon as the history has what it is given, starts it
// again, and waits until all is done.
func killedAfter(t *testing.T, component, what string, seen func(*env) bool) {
	e := start(t, 2, nil)
	e.touch("node-a", "node-b")
	e.until(what, func() bool { return seen(e) })
	p := e.Daemons[component]
	must(t, p.Kill())
	must(t, p.Restart())
	e.untilAllRebooted(2)
}

func TestC03TheLockerIsKilledAfterItTookTheLease(t *testing.T) {
	killedAfter(t, "locker", "a slot to be taken", func(e *env) bool { return e.slotsHeld() > 0 })
}

func TestC03TheLockerIsKilledAfterItWroteTheGrant(t *testing.T) {
	killedAfter(t, "locker", "a grant", func(e *env) bool { return e.node("node-a").State.Locker.Step == protocol.Granted })
}

func TestC03TheLockerIsKilledAfterTheReleaseAndBeforeItFreedTheLease(t *testing.T) {
	killedAfter(t, "locker", "a release", func(e *env) bool {
		return e.node("node-a").State.Locker.Step == protocol.Released || e.node("node-b").State.Locker.Step == protocol.Released
	})
}

// The locker's own writes are made here in its place, so that it is sure to be found
// between two of them.
func TestC03TheLockerStartsAndFindsASlotTakenAndNoGrant(t *testing.T) {
	e := start(t, 2, nil, idle)
	e.touch("node-a")
	e.untilPhase("node-a", protocol.Waiting)
	turn := e.takeSlot("default.0", "node-a")
	for _, component := range []string{"locker", "drainer", "dispatcher"} {
		e.daemon(component, component)
	}
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	// Nobody can tell whether that turn was ever used, so it is given back, not given again.
	if got := e.node("node-a").State.Locker.Grant.Turn; got <= turn {
		t.Errorf("the cycle was under turn %d, and turn %d was taken by somebody else", got, turn)
	}
	if n := e.Sim.Reboots("node-a"); n != 1 {
		t.Errorf("it was rebooted %d times", n)
	}
}

func TestC03TheLockerStartsAndFindsASlotTakenWhoseNeedHasVanished(t *testing.T) {
	e := start(t, 2, nil, idle)
	e.takeSlot("default.0", "node-a")
	e.daemon("locker", "locker")
	e.untilReleased("node-a", protocol.OutcomeRevoked)
	e.until("the slot to be free", func() bool { return e.slotsHeld() == 0 })
}

// takeSlot takes a slot for a node as a locker does that is killed right then.
func (e *env) takeSlot(slot, node string) int {
	e.t.Helper()
	leases := e.Cluster.Admin().CoordinationV1().Leases(protocol.SystemNamespace)
	lease, err := leases.Get(e.ctx, slot, metav1.GetOptions{})
	if err != nil {
		lease = newSlot(slot)
		lease, err = leases.Create(e.ctx, lease, metav1.CreateOptions{})
		must(e.t, err)
	}
	now := metav1.NewMicroTime(time.Now())
	turn := int32(1)
	if lease.Spec.LeaseTransitions != nil {
		turn = *lease.Spec.LeaseTransitions + 1
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions, lease.Spec.AcquireTime, lease.Spec.RenewTime = &node, &turn, &now, &now
	lease.Annotations = map[string]string{protocol.NodeUIDKey: e.node(node).UID}
	_, err = leases.Update(e.ctx, lease, metav1.UpdateOptions{})
	must(e.t, err)
	return int(turn)
}

func TestC04TwentyNodesBecomeNeedyInTheSameInstantWithCap2AndTwoLockers(t *testing.T) {
	e := start(t, 20, maxConcurrent("2"))
	e.daemon("locker", "locker-2")
	e.touchAll(20)
	e.untilAllRebooted(20)
	_, sum := history.Check(e.History.Events())
	if sum.MostInFlight["default"] > 2 || sum.MostUnavailable > 2 {
		t.Errorf("%d in flight at once, %d cordoned", sum.MostInFlight["default"], sum.MostUnavailable)
	}
}

// Leader election is no part of the safety: two lockers that both think they lead
// keep the cap.
func TestC04TwoLockersThatBothLeadKeepTheCap(t *testing.T) {
	e := start(t, 12, maxConcurrent("2"))
	// Of the same name, they both believe that they hold the lock.
	twin := e.daemon("locker", "twin", "--identity", "locker")
	e.until("both to lead", func() bool {
		return strings.Contains(twin.LogTail(1000), "leading") && strings.Contains(e.Daemons["locker"].LogTail(1000), "leading")
	})
	e.touchAll(12)
	e.untilAllRebooted(12)
	if _, sum := history.Check(e.History.Events()); sum.MostInFlight["default"] > 2 {
		t.Errorf("%d in flight at once", sum.MostInFlight["default"])
	}
}

func TestC05TheCapIsLoweredFrom3To1WithThreeInFlightTheyFinishAndNothingIsAddedUntilNoneIsLeft(t *testing.T) {
	e := start(t, 5, maxConcurrent("3"), behaving(sim.Behavior{StaysDown: true}))
	e.touchAll(5)
	e.until("three to be rebooting", func() bool {
		n := 0
		for _, node := range e.nodes {
			if node.Phase() == protocol.PhaseReboot && e.Sim.Down(node.Name) {
				n++
			}
		}
		return n == 3
	})
	e.setWindow("default", maxConcurrent("1"))
	for i := range 5 {
		must(t, e.Sim.SetBehavior(name(i), func(b *sim.Behavior) { b.StaysDown = false }))
		must(t, e.Sim.Return(name(i)))
	}
	e.untilAllRebooted(5)
}

func TestC06MaxConcurrentAsAPercentageIsRoundedDownAndAtLeastOne(t *testing.T) {
	for _, c := range []struct {
		nodes   int
		percent string
		want    int
	}{{11, "50%", 5}, {3, "10%", 1}} {
		t.Run(fmt.Sprintf("%d nodes, %s", c.nodes, c.percent), func(t *testing.T) {
			e := start(t, c.nodes, maxConcurrent(c.percent))
			e.touchAll(c.nodes)
			e.untilAllRebooted(c.nodes)
			if _, sum := history.Check(e.History.Events()); sum.MostInFlight["default"] > c.want {
				t.Errorf("%d in flight at once, want %d at most", sum.MostInFlight["default"], c.want)
			}
		})
	}
}

func TestC07ANodeSelectedByTwoOpenWindowsGetsOneGrantOneJob(t *testing.T) {
	e := start(t, 2, nil)
	e.setWindow("another", func(s *spec) { s.Priority = 10 })
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	if got := e.node("node-a").State.Locker.Grant.Window; got != "another" {
		t.Errorf("it was granted by window %s, and another has the higher priority", got)
	}
	_, sum := history.Check(e.History.Events())
	jobs := 0
	for _, j := range e.jobs() {
		if j.Annotations[protocol.NodeUIDKey] == e.node("node-a").UID {
			jobs++
		}
	}
	if sum.Grants["node-a"] != 1 || jobs != 1 || e.Sim.Reboots("node-a") != 1 {
		t.Errorf("%d grants, %d Jobs, %d reboots", sum.Grants["node-a"], jobs, e.Sim.Reboots("node-a"))
	}
}

func TestC09PauseForEveryoneNoGrantVisibleWhyLiftedItGoesOn(t *testing.T) {
	e := start(t, 2, func(s *spec) { s.Suspended = true })
	e.touch("node-a")
	e.untilWaiting("default", "node-a", "Suspended")
	e.untilEvent("node-a", kube.EventRebootWaiting, "Suspended")
	if e.slotsHeld() > 0 {
		t.Error("a suspended window has a slot taken")
	}
	e.setWindow("default", nil)
	e.untilReleased("node-a", protocol.OutcomeRebooted)
}

func TestC09PauseForEveryoneInMidDrainTheNodeIsRestored(t *testing.T) {
	e := start(t, 1, nil)
	e.stubborn("node-a")
	e.touch("node-a")
	e.untilPhase("node-a", protocol.Draining)
	e.setWindow("default", func(s *spec) { s.Suspended = true })
	e.untilReleased("node-a", protocol.OutcomeRevoked)
	if n := e.node("node-a"); n.Unschedulable || e.Sim.Reboots("node-a") != 0 {
		t.Errorf("unschedulable %v, %d reboots", n.Unschedulable, e.Sim.Reboots("node-a"))
	}
	e.untilEvent("node-a", kube.EventSlotRevoked, "suspended")
}

func TestC09PauseForANodeNoGrantVisibleWhyLiftedItGoesOn(t *testing.T) {
	e := start(t, 2, nil)
	e.annotate("node-a", protocol.HoldKey, "")
	e.touch("node-a", "node-b")
	e.untilReleased("node-b", protocol.OutcomeRebooted)
	e.untilWaiting("default", "node-a", "Hold")
	e.untilEvent("node-a", kube.EventRebootWaiting, "Hold")
	e.unannotate("node-a", protocol.HoldKey)
	e.untilReleased("node-a", protocol.OutcomeRebooted)
}

func TestC09HoldInMidDrainTheNodeIsRestored(t *testing.T) {
	e := start(t, 1, nil)
	e.stubborn("node-a")
	e.touch("node-a")
	e.untilPhase("node-a", protocol.Draining)
	e.annotate("node-a", protocol.HoldKey, "")
	e.untilReleased("node-a", protocol.OutcomeRevoked)
	if n := e.node("node-a"); n.Unschedulable || e.Sim.Reboots("node-a") != 0 {
		t.Errorf("unschedulable %v, %d reboots", n.Unschedulable, e.Sim.Reboots("node-a"))
	}
}

func TestTheNeedVanishesInMidDrainTheNodeIsRestored(t *testing.T) {
	e := start(t, 1, nil)
	e.stubborn("node-a")
	e.touch("node-a")
	e.untilPhase("node-a", protocol.Draining)
	must(t, e.Sim.RemoveSentinel("node-a"))
	e.untilReleased("node-a", protocol.OutcomeRevoked)
	if n := e.node("node-a"); n.Unschedulable {
		t.Error("the node is still cordoned")
	}
}

func TestOfTheControlPlaneOneNodeAtATimeWhateverTheWindowsSay(t *testing.T) {
	e := start(t, 0, maxConcurrent("5"))
	e.setWindow("another", func(s *spec) {
		maxConcurrent("5")(s)
		s.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "b"}}
		s.Priority = 1
	})
	e.addNodes(
		sim.NodeSpec{Name: name(0), ControlPlane: true},
		sim.NodeSpec{Name: name(1), ControlPlane: true, Labels: map[string]string{"pool": "b"}},
		sim.NodeSpec{Name: name(2), ControlPlane: true, Labels: map[string]string{"pool": "b"}},
	)
	e.touchAll(3)
	e.untilAllRebooted(3) // the history's check counts those of the control plane
}

// stubborn puts a pod on a node that takes long to end, so that its drain does.
func (e *env) stubborn(node string) {
	e.t.Helper()
	must(e.t, e.Sim.AddWorkloads(e.ctx, sim.Workload{Name: "stubborn", Replicas: 1, StopDelay: "60s"}))
	e.until("the stubborn pod to run on "+node, func() bool {
		for _, p := range e.Sim.Pods(node) {
			if strings.HasPrefix(p.Name, "stubborn") && p.Status.Phase == corev1.PodRunning {
				return true
			}
		}
		return false
	})
}
