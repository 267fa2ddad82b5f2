package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/protocol"
)

// node is a Ready node in boot b1; words say what is different: key=value for an
// annotation by its component's name, or cordoned, away, b2 and b3 for the boot, master.
func node(name string, words ...string) runtime.Object {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}, Labels: map[string]string{}}}
	n.Status.NodeInfo.BootID = "b1"
	ready := corev1.ConditionTrue
	for _, word := range words {
		key, value, annotation := strings.Cut(word, "=")
		switch {
		case annotation && !strings.Contains(key, " "):
			n.Annotations[key+".ganglion.dev/status"] = value
		case word == "cordoned":
			n.Spec.Unschedulable = true
		case word == "away":
			ready = corev1.ConditionFalse
		case word == "master":
			n.Labels[protocol.ControlPlaneLabel] = ""
		default:
			n.Status.NodeInfo.BootID = word
		}
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

func slot(grant, holder string) runtime.Object {
	g, err := protocol.ParseGrant(grant)
	if err != nil {
		panic(err)
	}
	turn := int32(g.Turn)
	taken := metav1.MicroTime{Time: metav1.Now().Rfc3339Copy().Time}
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: g.Slot.String(), Namespace: protocol.SystemNamespace, Labels: map[string]string{protocol.WindowKey: g.Window}, Annotations: map[string]string{},
	}}
	l.Spec.HolderIdentity, l.Spec.LeaseTransitions, l.Spec.AcquireTime = &holder, &turn, &taken
	if holder != "" {
		l.Annotations[protocol.NodeUIDKey] = "uid-" + holder
	}
	return l
}

func window(limit int) runtime.Object {
	w := &v1alpha1.NodesMaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Name: "w"}}
	w.Spec.Serialization.MaxConcurrent = intstr.FromInt(limit)
	return w
}

func job(uid string) runtime.Object {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: "j", Namespace: protocol.NodesNamespace, UID: types.UID(uid),
		Labels: map[string]string{protocol.GrantKey: "w.0.1"}, Annotations: map[string]string{protocol.NodeKey: "a"},
	}}
}

func pod(phase corev1.PodPhase) runtime.Object {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
		Spec:       corev1.PodSpec{NodeName: "a"}, Status: corev1.PodStatus{Phase: phase},
	}
}

func gone(o runtime.Object) Event { return Event{Object: o, Gone: true} }

// told is a history of these, in this order.
func told(things ...any) []Event {
	var events []Event
	for i, thing := range things {
		e, is := thing.(Event)
		if !is {
			e = Event{Object: thing.(runtime.Object)}
		}
		e.Revision = uint64(i + 1)
		events = append(events, e)
	}
	return events
}

const (
	granted   = "locker=granted w.0.1"
	cordoned  = "drainer=cordoned w.0.1"
	drained   = "drainer=drained w.0.1"
	rebooting = "rebooter=rebooting w.0.1 b1 2026-12-01T12:00:00Z"
	rebooted  = "rebooter=rebooted w.0.1"
	restored  = "drainer=restored w.0.1"
	released  = "locker=released w.0.1 2026-12-01T12:00:00Z outcome=rebooted"
)

// cycle is a whole cycle as it should be.
func cycle() []any {
	return []any{
		window(1), node("a"), pod(corev1.PodRunning), slot("w.0.1", "a"), node("a", granted),
		node("a", granted, cordoned, "cordoned"), gone(pod(corev1.PodRunning)),
		node("a", granted, drained, "cordoned"), node("a", granted, drained, rebooting, "cordoned"), job("1"),
		node("a", granted, drained, rebooting, "cordoned", "away"), node("a", granted, drained, rebooting, "cordoned", "away", "b2"),
		node("a", granted, drained, rebooting, "cordoned", "b2"), node("a", granted, drained, rebooted, "cordoned", "b2"),
		node("a", granted, restored, rebooted, "b2"), node("a", released, restored, rebooted, "b2"), slot("w.0.1", ""),
	}
}

func TestAWholeCycleBreaksNothingAndIsCounted(t *testing.T) {
	violations, sum := Check(told(cycle()...))
	if len(violations) > 0 {
		t.Error(violations)
	}
	if sum.Reboots["a"] != 1 || sum.Grants["a"] != 1 || sum.MostInFlight["w"] != 1 || sum.MostUnavailable != 1 || sum.Evicted != 1 {
		t.Errorf("%+v", sum)
	}
}

func TestEveryBrokenPromiseIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		history []any
		broken  Invariant
	}{
		"a slot beyond the cap is taken":                  {[]any{window(1), node("a"), node("b"), slot("w.0.1", "a"), slot("w.1.1", "b")}, Cap},
		"a grant that no Lease backs":                     {[]any{window(1), node("a"), node("a", granted)}, Cap},
		"a grant whose Lease another node holds":          {[]any{window(1), node("a"), slot("w.0.1", "b"), node("a", granted)}, Cap},
		"a second grant on one node":                      {[]any{window(2), node("a"), slot("w.0.1", "a"), node("a", granted), slot("w.1.1", "a"), node("a", "locker=granted w.1.1")}, Cap},
		"a grant on a node with something unfinished":     {[]any{window(2), node("a", "drainer=cordoned v.0.1", "cordoned"), slot("w.0.1", "a"), node("a", granted, "drainer=cordoned v.0.1", "cordoned")}, Cap},
		"two of the control plane":                        {[]any{window(2), node("a", "master"), node("b", "master"), slot("w.0.1", "a"), node("a", granted, "master"), slot("w.1.1", "b"), node("b", "locker=granted w.1.1", "master")}, Cap},
		"a slot's turn goes back":                         {[]any{window(1), node("a"), slot("w.0.5", ""), slot("w.0.4", "a")}, Cap},
		"a reboot that was revoked":                       {[]any{window(1), slot("w.0.1", "a"), node("a", "locker=revoked w.0.1 x", drained, "cordoned"), node("a", "locker=revoked w.0.1 x", drained, rebooting, "cordoned")}, Cap},
		"a reboot of a node that is not drained":          {[]any{window(1), slot("w.0.1", "a"), node("a", granted, cordoned, "cordoned"), node("a", granted, cordoned, rebooting, "cordoned")}, DrainedFirst},
		"a reboot of a node that is schedulable":          {[]any{window(1), slot("w.0.1", "a"), node("a", granted, drained), node("a", granted, drained, rebooting)}, DrainedFirst},
		"cordoned is said and it is not":                  {[]any{window(1), slot("w.0.1", "a"), node("a", granted), node("a", granted, cordoned)}, DrainedFirst},
		"drained is said with a pod on the node":          {[]any{window(1), pod(corev1.PodRunning), slot("w.0.1", "a"), node("a", granted, cordoned, "cordoned"), node("a", granted, drained, "cordoned")}, DrainedFirst},
		"drained is said of a node that was not cordoned": {[]any{window(1), slot("w.0.1", "a"), node("a", granted), node("a", granted, drained, "cordoned")}, DrainedFirst},
		"a node is restored while it may reboot":          {[]any{window(1), slot("w.0.1", "a"), node("a", granted, drained, rebooting, "cordoned"), node("a", granted, restored, rebooting)}, DrainedFirst},
		"two boots under a grant":                         {[]any{window(1), node("a", granted, drained, rebooting, "cordoned"), node("a", granted, drained, rebooting, "cordoned", "b2"), node("a", granted, drained, rebooting, "cordoned", "b3")}, AtMostOnce},
		"two Jobs of a grant":                             {[]any{window(1), job("1"), job("2")}, AtMostOnce},
		"a foreign cordon is passed for our own":          {[]any{window(1), node("a", granted, "cordoned"), node("a", granted, cordoned, "cordoned")}, OwnCordonOnly},
		"a foreign cordon is undone":                      {[]any{window(1), node("a", granted, "drainer=drained w.0.1 foreign", rebooted, "cordoned", "b2"), node("a", granted, restored, rebooted, "b2")}, OwnCordonOnly},
		"our own cordon stays":                            {[]any{window(1), node("a", granted, drained, rebooted, "cordoned", "b2"), node("a", granted, restored, rebooted, "cordoned", "b2")}, OwnCordonOnly},
		"our own cordon stays after a failure":            {[]any{window(1), node("a", granted, cordoned, "cordoned"), node("a", granted, "drainer=failed w.0.1 x", "cordoned")}, OwnCordonOnly},
		"rebooted without a new boot id":                  {[]any{window(1), node("a", granted, drained, rebooting, "cordoned"), node("a", granted, drained, rebooted, "cordoned")}, Proof},
		"rebooted and not Ready":                          {[]any{window(1), node("a", granted, drained, rebooting, "cordoned", "b2"), node("a", granted, drained, rebooted, "cordoned", "b2", "away")}, Proof},
		"rebooted out of nothing":                         {[]any{window(1), node("a", granted, drained, "cordoned", "b2"), node("a", granted, drained, rebooted, "cordoned", "b2")}, Proof},
		"a slot is given back before its node says so":    {[]any{window(1), node("a", granted), slot("w.0.1", "a"), slot("w.0.1", "")}, NoLostSlot},
		"a slot goes from one node to the next":           {[]any{window(1), node("a", granted), node("b"), slot("w.0.1", "a"), slot("w.0.2", "b")}, NoLostSlot},
		"granted again too soon":                          {[]any{window(1), node("a", fmt.Sprintf("locker=released w.0.1 %s outcome=rebooted", metav1.Now().UTC().Format("2006-01-02T15:04:05Z"))), slot("w.0.2", "a"), node("a", "locker=granted w.0.2")}, NoLoop},
		"a status is written beside garbage":              {[]any{window(1), node("a", granted, "rebooter=garbage"), node("a", "locker=revoked w.0.1 x", "rebooter=garbage")}, FailsSafe},
	} {
		t.Run(name, func(t *testing.T) {
			violations, _ := Check(told(c.history...))
			if !slices.ContainsFunc(violations, func(v Violation) bool { return v.Invariant == c.broken }) {
				t.Errorf("%s is not found to be broken; found: %v", c.broken, violations)
			}
		})
	}
}

func TestWhatIsAllowedIsNotFound(t *testing.T) {
	for name, history := range map[string][]any{
		"a slot of a node that is gone is given back":        {window(1), node("a", granted), slot("w.0.1", "a"), gone(node("a", granted)), slot("w.0.1", "")},
		"a slot of a node that went on under another is":     {window(2), node("a", "locker=granted w.1.1"), slot("w.1.1", "a"), slot("w.0.1", "a"), slot("w.0.1", "")},
		"a foreign cordon that stays":                        {window(1), node("a", granted, "cordoned"), slot("w.0.1", "a"), node("a", granted, "drainer=cordoned w.0.1 foreign", "cordoned"), node("a", "locker=revoked w.0.1 x", "drainer=cordoned w.0.1 foreign", "cordoned"), node("a", "locker=revoked w.0.1 x", restored, "cordoned")},
		"a finished pod is left on a drained node":           {window(1), pod(corev1.PodSucceeded), slot("w.0.1", "a"), node("a", granted, cordoned, "cordoned"), node("a", granted, drained, "cordoned")},
		"versions were missed":                               {window(1), node("a", granted, drained, rebooting, "cordoned"), Event{Object: node("a", released, restored, rebooted, "b2"), Gap: true}},
		"a lowered cap and those that were in flight before": {window(2), slot("w.0.1", "a"), slot("w.1.1", "b"), window(1)},
		"maintenance without a reboot":                       {window(1), node("a", granted, drained, rebooting, "cordoned"), node("a", granted, drained, "rebooter=rebooted w.0.1 done", "cordoned")},
		"garbage is removed":                                 {window(1), node("a", granted, "rebooter=garbage"), node("a", granted)},
	} {
		t.Run(name, func(t *testing.T) {
			if violations, _ := Check(told(history...)); len(violations) > 0 {
				t.Error(violations)
			}
		})
	}
}
