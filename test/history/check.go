package history

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

// Invariant is a promise of the protocol, by its name there.
type Invariant string

// The promises that a history can break.
const (
	Cap           Invariant = "Cap"
	DrainedFirst  Invariant = "Drained first"
	AtMostOnce    Invariant = "At most once"
	OwnCordonOnly Invariant = "Own cordon only"
	Proof         Invariant = "Proof"
	NoLostSlot    Invariant = "No lost slot"
	NoLoop        Invariant = "No loop"
	FailsSafe     Invariant = "Closed fails safe"
)

// Invariants are all of them.
var Invariants = []Invariant{Cap, DrainedFirst, AtMostOnce, OwnCordonOnly, Proof, FailsSafe, NoLostSlot, NoLoop}

// Violation is a promise that was broken, and when.
type Violation struct {
	Invariant Invariant
	Revision  uint64
	Text      string
}

// String is a line.
func (v Violation) String() string {
	return fmt.Sprintf("%s broken at revision %d: %s", v.Invariant, v.Revision, v.Text)
}

// Summary counts what happened in a history.
type Summary struct {
	// Reboots is how often the boot id of a node changed under a grant, by node.
	Reboots map[string]int
	// Grants is how often each node was granted a slot.
	Grants map[string]int
	// MostInFlight is the most nodes of a window at once between granted and
	// released; MostUnavailable the most nodes that were cordoned under a grant.
	MostInFlight    map[string]int
	MostUnavailable int
	// Evicted is how many pods left a node while it was being drained.
	Evicted int
}

// Check goes through a history and finds every broken promise in it.
func Check(events []Event) ([]Violation, Summary) {
	c := &checker{
		nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}, leases: map[string]*coordinationv1.Lease{},
		windows: map[string]*v1alpha1.NodesMaintenanceWindow{}, jobs: map[string]int{}, boots: map[string]int{},
		summary: Summary{Reboots: map[string]int{}, Grants: map[string]int{}, MostInFlight: map[string]int{}},
	}
	for _, e := range events {
		c.revision = e.Revision
		switch o := e.Object.(type) {
		case *corev1.Node:
			c.node(o, e)
		case *corev1.Pod:
			c.pod(o, e)
		case *coordinationv1.Lease:
			c.lease(o, e)
		case *batchv1.Job:
			c.job(o, e)
		case *v1alpha1.NodesMaintenanceWindow:
			put(c.windows, kube.Window(o), e)
		}
	}
	return c.violations, c.summary
}

type checker struct {
	revision   uint64
	nodes      map[string]*corev1.Node
	pods       map[string]*corev1.Pod
	leases     map[string]*coordinationv1.Lease
	windows    map[string]*v1alpha1.NodesMaintenanceWindow
	jobs       map[string]int // Jobs that were made, by node and grant
	boots      map[string]int // boots that a grant led to, by node and grant
	violations []Violation
	summary    Summary
}

func (c *checker) broken(i Invariant, format string, args ...any) {
	c.violations = append(c.violations, Violation{i, c.revision, fmt.Sprintf(format, args...)})
}

func put[O metav1.Object](m map[string]O, o O, e Event) {
	key := o.GetNamespace() + "/" + o.GetName()
	if e.Gone {
		delete(m, key)
		return
	}
	m[key] = o
}

// node checks what one write to a Node has changed.
func (c *checker) node(o *corev1.Node, e Event) {
	was := c.nodes["/"+o.Name]
	put(c.nodes, o, e)
	if was == nil || was.UID != o.UID || e.Gone || e.Gap {
		return
	}
	old, now := kube.Node(was), kube.Node(o)
	if old.Err != nil || now.Err != nil {
		c.unreadable(was, o, old, now)
		return
	}
	c.locker(old, now)
	c.drainer(old, now)
	c.rebooter(old, now)
	c.boot(old, now)
	c.count()
}

// unreadable: nobody writes a status to a node that carries what cannot be read.
func (c *checker) unreadable(was, is *corev1.Node, old, now *protocol.Node) {
	if old.Err == nil || now.Err == nil {
		return // somebody spoiled it, or mended it
	}
	for _, key := range []string{protocol.LockerKey, protocol.DrainerKey, protocol.RebooterKey} {
		_, err := protocol.ParseState(map[string]string{key: was.Annotations[key]})
		if was.Annotations[key] != is.Annotations[key] && was.Annotations[key] != "" && err == nil && is.Annotations[key] != "" {
			c.broken(FailsSafe, "node %s carries %v, and %s went from %q to %q", is.Name, old.Err, key, was.Annotations[key], is.Annotations[key])
		}
	}
	if was.Spec.Unschedulable != is.Spec.Unschedulable && was.Annotations[protocol.DrainerKey] != is.Annotations[protocol.DrainerKey] {
		c.broken(FailsSafe, "node %s carries %v, and was cordoned or uncordoned", is.Name, old.Err)
	}
}

func (c *checker) locker(old, now *protocol.Node) {
	was, is := old.State.Locker, now.State.Locker
	if was == is || is.Step != protocol.Granted {
		return
	}
	g := is.Grant
	if current := old.State.Current(); !current.IsZero() && current != g {
		c.broken(Cap, "node %s was granted %s while it was under %s", now.Name, g, current)
	}
	if err := c.slot(g).Backs(g, now); err != nil {
		c.broken(Cap, "node %s was granted %s: %v", now.Name, g, err)
	}
	if old.State.Leftover() && !old.State.UnfinishedUnder(g) {
		c.broken(Cap, "node %s was granted %s with something unfinished on it", now.Name, g)
	}
	if was.Grant != g {
		c.summary.Grants[now.Name]++
	}
	if now.ControlPlane() {
		for _, other := range c.sortedNodes() {
			if other.Name != now.Name && other.ControlPlane() && other.Err == nil && !other.State.Current().IsZero() {
				c.broken(Cap, "nodes %s and %s of the control plane are in flight", now.Name, other.Name)
			}
		}
	}
	w := c.windows["/"+g.Window]
	if w == nil {
		return
	}
	if was.Step == protocol.Released && was.Outcome == protocol.OutcomeRebooted && was.Grant != g {
		if since := c.leaseTaken(g).Sub(was.At); since < w.Spec.MinRebootInterval.Duration-1e9 {
			c.broken(NoLoop, "node %s was granted %s after %s", now.Name, g, since)
		}
	}
}

func (c *checker) slot(g protocol.Grant) *rules.Lease {
	if l := c.leases[protocol.SystemNamespace+"/"+g.Slot.String()]; l != nil {
		return kube.Lease(l)
	}
	return nil
}

func (c *checker) leaseTaken(g protocol.Grant) (t metav1.Time) {
	if l := c.slot(g); l != nil {
		t = metav1.NewTime(l.Acquired)
	}
	return t
}

func (c *checker) drainer(old, now *protocol.Node) {
	was, is := old.State.Drainer, now.State.Drainer
	if was == is {
		return
	}
	switch is.Step {
	case protocol.Cordoned:
		if !now.Unschedulable {
			c.broken(DrainedFirst, "node %s is %s and schedulable", now.Name, is)
		}
		if old.Unschedulable && !is.Foreign && was.Step != protocol.Cordoned && was.Step != protocol.Drained {
			c.broken(OwnCordonOnly, "node %s was cordoned before %s", now.Name, is)
		}
	case protocol.Drained:
		if was.Step != protocol.Cordoned || was.Grant != is.Grant || was.Foreign != is.Foreign {
			c.broken(DrainedFirst, "node %s went from %q to %q", now.Name, was, is)
		}
		if left := c.left(now.Name, is.Grant); len(left) > 0 {
			c.broken(DrainedFirst, "node %s is %s with %s on it", now.Name, is, strings.Join(left, ", "))
		}
	case protocol.Restored, protocol.Failed:
		own := (was.Step == protocol.Cordoned || was.Step == protocol.Drained) && !was.Foreign
		switch {
		case own && now.Unschedulable:
			c.broken(OwnCordonOnly, "node %s is %s and still cordoned", now.Name, is)
		case !own && old.Unschedulable && !now.Unschedulable:
			c.broken(OwnCordonOnly, "node %s is %s and a cordon that was not ours is gone", now.Name, is)
		}
		if r := now.State.RebooterOn(is.Grant); is.Step == protocol.Restored && r.Step == protocol.Rebooting {
			c.broken(DrainedFirst, "node %s was restored while it was %s", now.Name, r)
		}
	}
}

// left names the pods that a drain should have taken from a node.
func (c *checker) left(node string, g protocol.Grant) []string {
	if w := c.windows["/"+g.Window]; w == nil || w.Spec.Drain.Skip || w.Spec.Drain.PodSelector != nil ||
		w.Spec.Drain.SkipWaitForDeleteTimeout.Duration > 0 {
		return nil
	}
	var names []string
	for _, pod := range c.pods {
		owner := metav1.GetControllerOf(pod)
		_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		switch {
		case pod.Spec.NodeName != node, mirror:
		case owner != nil && owner.Kind == "DaemonSet":
		case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		case pod.Namespace == protocol.SystemNamespace && pod.Labels["app.kubernetes.io/name"] == "ganglion":
		default:
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *checker) rebooter(old, now *protocol.Node) {
	was, is := old.State.Rebooter, now.State.Rebooter
	if was == is {
		return
	}
	switch is.Step {
	case protocol.Rebooting:
		if d := now.State.DrainerOn(is.Grant); d.Step != protocol.Drained || !now.Unschedulable {
			c.broken(DrainedFirst, "node %s is %s, drainer says %q, unschedulable %v", now.Name, is, d, now.Unschedulable)
		}
		if now.State.Locker.Step != protocol.Granted || now.State.Locker.Grant != is.Grant {
			c.broken(Cap, "node %s is %s, locker says %q", now.Name, is, now.State.Locker)
		}
		if err := c.slot(is.Grant).Backs(is.Grant, now); err != nil {
			c.broken(Cap, "node %s is %s: %v", now.Name, is, err)
		}
	case protocol.Rebooted:
		switch {
		case was.Step != protocol.Rebooting || was.Grant != is.Grant:
			c.broken(Proof, "node %s went from %q to %q", now.Name, was, is)
		case !now.Ready:
			c.broken(Proof, "node %s is %s and not Ready", now.Name, is)
		case !is.Done && now.BootID == was.BootID:
			c.broken(Proof, "node %s is %s in boot %s still", now.Name, is, was.BootID)
		}
	}
}

// boot counts the boots that a grant led to.
func (c *checker) boot(old, now *protocol.Node) {
	if old.BootID == now.BootID {
		return
	}
	r := old.State.Rebooter
	if r.Step != protocol.Rebooting {
		return // nobody of ours
	}
	c.summary.Reboots[now.Name]++
	if c.boots[now.Name+" "+r.Grant.String()]++; c.boots[now.Name+" "+r.Grant.String()] > 1 {
		c.broken(AtMostOnce, "node %s was rebooted twice under %s", now.Name, r.Grant)
	}
}

// count keeps the maxima of the summary, and the cap by what the nodes say.
func (c *checker) count() {
	inFlight, cordoned := map[string]int{}, 0
	for _, n := range c.sortedNodes() {
		if n.Err != nil {
			continue
		}
		if g := n.State.Current(); !g.IsZero() {
			inFlight[g.Window]++
		}
		if n.State.Cordoned() {
			cordoned++
		}
	}
	for w, n := range inFlight {
		c.summary.MostInFlight[w] = max(c.summary.MostInFlight[w], n)
	}
	c.summary.MostUnavailable = max(c.summary.MostUnavailable, cordoned)
}

func (c *checker) sortedNodes() []*protocol.Node {
	nodes := make([]*protocol.Node, 0, len(c.nodes))
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		nodes = append(nodes, kube.Node(c.nodes[name]))
	}
	return nodes
}

// lease checks that slots are taken within the cap, and given back only when it is safe.
func (c *checker) lease(o *coordinationv1.Lease, e Event) {
	key := o.Namespace + "/" + o.Name
	var old *rules.Lease
	if was := c.leases[key]; was != nil {
		old = kube.Lease(was)
	}
	put(c.leases, o, e)
	if !kube.IsSlotLease(o) || o.Name == rules.ControlPlaneLease || e.Gap || e.Gone {
		return
	}
	now := kube.Lease(o)
	if now.Err != nil || old != nil && old.Err != nil {
		return
	}
	taken := now.Held() && (old == nil || !old.Held() || old.Turn != now.Turn)
	freed := old != nil && old.Held() && (!now.Held() || old.Turn != now.Turn)
	if freed {
		c.freed(old)
	}
	if taken {
		if old != nil && now.Turn <= old.Turn {
			c.broken(Cap, "slot %s went from turn %d to %d", now.Name, old.Turn, now.Turn)
		}
		c.taken(now.Slot.Window)
	}
}

// taken counts the slots of a window after one was taken.
func (c *checker) taken(window string) {
	w := c.windows["/"+window]
	if w == nil {
		return
	}
	held := 0
	for _, l := range c.leases {
		if l.Labels[protocol.WindowKey] == window && kube.IsSlotLease(l) && l.Name != rules.ControlPlaneLease && kube.Lease(l).Held() {
			held++
		}
	}
	if limit := c.limit(w); held > limit {
		c.broken(Cap, "%d slots of window %s are taken, of %d", held, window, limit)
	}
}

// limit is a window's cap, worked out here once more rather than by the code under test.
func (c *checker) limit(w *v1alpha1.NodesMaintenanceWindow) int {
	m := w.Spec.Serialization.MaxConcurrent
	if m.Type == intstr.Int {
		return int(m.IntVal)
	}
	selector, err := metav1.LabelSelectorAsSelector(&w.Spec.NodeSelector)
	if err != nil {
		return 0
	}
	selected := 0
	for _, n := range c.nodes {
		if selector.Matches(labels.Set(n.Labels)) {
			selected++
		}
	}
	percent, _ := strconv.Atoi(strings.TrimSuffix(m.StrVal, "%"))
	return max(1, selected*percent/100)
}

// freed checks that the node whose slot went had said so, or is gone.
func (c *checker) freed(l *rules.Lease) {
	o := c.nodes["/"+l.Holder]
	if o == nil || string(o.UID) != l.NodeUID {
		return
	}
	n := kube.Node(o)
	g, s := l.Grant(), n.State.Locker
	released := s.Step == protocol.Released && s.Grant == g
	elsewhere := !n.State.Current().IsZero() && n.State.Current() != g
	if n.Err != nil || !released && !elsewhere {
		c.broken(NoLostSlot, "slot %s was given back at turn %d, and its node %s says %q", l.Name, l.Turn, n.Name, s)
	}
}

// job counts the Jobs of a grant.
func (c *checker) job(o *batchv1.Job, e Event) {
	g := o.Labels[protocol.GrantKey]
	if g == "" || e.Gone || e.Gap {
		return
	}
	key := o.Annotations[protocol.NodeKey] + " " + g
	if uid := string(o.UID); c.jobs[key+" "+uid] == 0 {
		c.jobs[key+" "+uid] = 1
		if c.jobs[key]++; c.jobs[key] > 1 {
			c.broken(AtMostOnce, "%d Jobs were made for node %s", c.jobs[key], key)
		}
	}
}

func (c *checker) pod(o *corev1.Pod, e Event) {
	if e.Gone {
		if node := c.nodes["/"+o.Spec.NodeName]; node != nil && o.Labels[protocol.GrantKey] == "" {
			if n := kube.Node(node); n.Err == nil && n.Phase() == protocol.Draining {
				c.summary.Evicted++
			}
		}
	}
	put(c.pods, o, e)
}

// SlotLease is the slot that an event is about, where it is about one.
func SlotLease(e Event) (*rules.Lease, bool) {
	o, is := e.Object.(*coordinationv1.Lease)
	if !is || !kube.IsSlotLease(o) {
		return nil, false
	}
	return kube.Lease(o), true
}

// Node is the node that an event is about, where it is about one.
func Node(e Event) (*protocol.Node, bool) {
	o, is := e.Object.(*corev1.Node)
	if !is {
		return nil, false
	}
	return kube.Node(o), true
}
