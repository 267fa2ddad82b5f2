package cases

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
	"ganglion.dev/test/cluster"
	"ganglion.dev/test/history"
	"ganglion.dev/test/sim"
	"ganglion.dev/test/system"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{}) }

// patience is how long anything that is waited for may take on a busy machine.
const patience = 90 * time.Second

var binaries = sync.OnceValues(func() (map[string]string, error) {
	return shared.BuildDaemons(context.Background(), true)
})

var shared *cluster.Cluster

// env is Ganglion at work in one test, with what was last seen of every object.
type env struct {
	*system.System
	t   *testing.T
	ctx context.Context

	seen   int
	nodes  map[string]*protocol.Node
	leases map[string]*rules.Lease
	// checked is whether the promises are checked at the end: not where the test
	// itself writes what only a component may.
	checked bool
}

type spec = v1alpha1.NodesMaintenanceWindowSpec

func maxConcurrent(text string) func(*spec) {
	return func(s *spec) { s.Serialization.MaxConcurrent = intstr.Parse(text) }
}

// start makes the default window as it says, starts everything, and adds nodes that
// are called after the letters from a on.
func start(t *testing.T, nodes int, change func(*spec), options ...func(*system.Options)) *env {
	t.Helper()
	shared = cluster.Shared(t)
	programs, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	o := system.Options{Binaries: programs, Args: map[string][]string{"locker": {"--failure-backoff", "1s"}}}
	for _, option := range options {
		option(&o)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s, err := system.Start(ctx, shared, o)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	e := &env{System: s, t: t, ctx: ctx, nodes: map[string]*protocol.Node{}, leases: map[string]*rules.Lease{}, checked: true}
	t.Cleanup(func() {
		defer cancel()
		e.end()
	})
	e.setWindow("default", change)
	var specs []sim.NodeSpec
	for i := range nodes {
		specs = append(specs, sim.NodeSpec{Name: name(i)})
	}
	e.addNodes(specs...)
	return e
}

func name(i int) string { return fmt.Sprintf("node-%c", 'a'+i) }

func idle(o *system.Options) { o.Idle = true }

func behaving(b sim.Behavior) func(*system.Options) {
	return func(o *system.Options) { o.Behavior = b }
}

func (e *env) addNodes(specs ...sim.NodeSpec) {
	e.t.Helper()
	if err := e.Sim.AddNodes(e.ctx, specs); err != nil {
		e.t.Fatal(err)
	}
	e.until("a detector on every node", func() bool {
		for _, s := range specs {
			if p := e.Sim.Detector(s.Name); p == nil || !p.Running() {
				return false
			}
		}
		return true
	})
}

// end checks the promises and takes everything away.
func (e *env) end() {
	if e.checked {
		violations, _ := history.Check(e.History.Events())
		for _, v := range violations {
			e.t.Error(v)
		}
	}
	if e.t.Failed() {
		e.story()
	}
	if err := e.Stop(e.ctx); err != nil {
		e.t.Error(err)
	}
	windows, err := e.Client.Windows().List(e.ctx, metav1.ListOptions{})
	if err != nil {
		e.t.Error(err)
		return
	}
	for _, w := range windows.Items {
		if w.Name == "default" {
			continue
		}
		if err := e.Client.Windows().Delete(e.ctx, w.Name, metav1.DeleteOptions{}); err != nil {
			e.t.Error(err)
		}
	}
	for name, p := range e.Daemons {
		if text, err := os.ReadFile(p.Log()); err != nil || strings.Contains(string(text), "DATA RACE") || strings.Contains(string(text), "panic:") {
			e.t.Errorf("the log of %s has a race or a panic (%v):\n%s", name, err, p.LogTail(60))
		}
	}
}

// story logs what happened, for whoever has to find out why a test failed.
func (e *env) story() {
	for _, c := range e.Sim.Complaints() {
		e.t.Log("simulation:", c)
	}
	old := map[string]*corev1.Node{}
	for _, event := range e.History.Events() {
		switch o := event.Object.(type) {
		case *corev1.Node:
			was := old[o.Name]
			old[o.Name] = o
			if was == nil {
				continue
			}
			var changes []string
			for _, key := range slices.Sorted(maps.Keys(o.Annotations)) {
				if strings.Contains(key, protocol.Domain+"/") && was.Annotations[key] != o.Annotations[key] {
					changes = append(changes, key+"="+o.Annotations[key])
				}
			}
			for key := range was.Annotations {
				if _, is := o.Annotations[key]; !is {
					changes = append(changes, key+" removed")
				}
			}
			a, b := kube.Node(was), kube.Node(o)
			if a.BootID != b.BootID || a.Ready != b.Ready || a.Unschedulable != b.Unschedulable {
				changes = append(changes, fmt.Sprintf("boot=%.8s ready=%v unschedulable=%v", b.BootID, b.Ready, b.Unschedulable))
			}
			if changes != nil {
				e.t.Logf("%s node %s: %s", event.Seen.Format("15:04:05.000"), o.Name, strings.Join(changes, "; "))
			}
		default:
			if l, is := history.SlotLease(event); is {
				e.t.Logf("%s lease %s: holder=%q turn=%d", event.Seen.Format("15:04:05.000"), l.Name, l.Holder, l.Turn)
			}
		}
	}
	for name, p := range e.Daemons {
		e.t.Logf("log of %s:\n%s", name, p.LogTail(25))
	}
}

// fold takes in what has happened since it was last called.
func (e *env) fold() {
	events := e.History.After(e.seen)
	e.seen += len(events)
	for _, event := range events {
		if o, is := event.Object.(*corev1.Node); is {
			e.nodes[o.Name] = kube.Node(o)
			if event.Gone {
				delete(e.nodes, o.Name)
			}
		}
		if l, is := history.SlotLease(event); is {
			e.leases[l.Name] = l
		}
	}
}

// node is a node as last seen; an empty one where there is none.
func (e *env) node(name string) *protocol.Node {
	e.fold()
	if n := e.nodes[name]; n != nil {
		return n
	}
	return &protocol.Node{}
}

// until waits for a condition on what was seen.
func (e *env) until(what string, holds func() bool) {
	e.t.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		changed := e.History.Changed()
		e.fold()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-deadline:
			e.t.Fatalf("waited for %s in vain", what)
		}
	}
}

// untilReleased waits until a node's cycle has ended with an outcome.
func (e *env) untilReleased(name, outcome string) {
	e.t.Helper()
	e.until(fmt.Sprintf("node %s to be released with outcome %s", name, outcome), func() bool {
		s := e.node(name).State.Locker
		return s.Step == protocol.Released && s.Outcome == outcome
	})
}

// untilPhase waits until a node is in a phase.
func (e *env) untilPhase(name string, phase protocol.Phase) {
	e.t.Helper()
	e.until(fmt.Sprintf("node %s to be %s", name, phase), func() bool { return e.node(name).Phase() == phase })
}

// untilAllRebooted waits until the first n nodes have been rebooted and all slots
// are free.
func (e *env) untilAllRebooted(n int) {
	e.t.Helper()
	e.until("all nodes to be rebooted and all slots to be free", func() bool {
		for i := range n {
			node := e.node(name(i))
			if node.Phase() != protocol.Idle || node.State.Locker.Outcome != protocol.OutcomeRebooted {
				return false
			}
		}
		return e.slotsHeld() == 0
	})
	for i := range n {
		if got := e.Sim.Reboots(name(i)); got != 1 {
			e.t.Errorf("node %s was rebooted %d times", name(i), got)
		}
	}
}

func (e *env) slotsHeld() int {
	e.fold()
	held := 0
	for _, l := range e.leases {
		if l.Name != rules.ControlPlaneLease && l.Held() {
			held++
		}
	}
	return held
}

func (e *env) touch(names ...string) {
	e.t.Helper()
	for _, name := range names {
		if err := e.Sim.TouchSentinel(name); err != nil {
			e.t.Fatal(err)
		}
	}
}

func (e *env) touchAll(n int) {
	e.t.Helper()
	for i := range n {
		e.touch(name(i))
	}
}

func (e *env) setWindow(name string, change func(*spec)) {
	e.t.Helper()
	if change == nil {
		change = func(*spec) {}
	}
	if err := e.SetWindow(e.ctx, name, change); err != nil {
		e.t.Fatal(err)
	}
}

// patch changes a node as an admin would.
func (e *env) patch(node, patch string) {
	e.t.Helper()
	_, err := e.Cluster.Admin().CoreV1().Nodes().Patch(e.ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
}

// annotate sets an annotation; an empty value of remove removes it.
func (e *env) annotate(node, key, value string) {
	e.t.Helper()
	e.patch(node, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
}

func (e *env) unannotate(node, key string) {
	e.t.Helper()
	e.patch(node, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, key))
}

func (e *env) cordon(node string) {
	e.t.Helper()
	e.patch(node, `{"spec":{"unschedulable":true}}`)
	e.until("the cordon by hand", func() bool { return e.node(node).Unschedulable })
}

// daemon starts one more replica.
func (e *env) daemon(component, name string, args ...string) *cluster.Process {
	e.t.Helper()
	p, err := e.StartDaemon(e.ctx, component, name, args...)
	if err != nil {
		e.t.Fatal(err)
	}
	return p
}

// untilEvent waits for an Event on a node, or on a window, with a reason and a text in its message.
func (e *env) untilEvent(object, reason, text string) {
	e.t.Helper()
	e.until(fmt.Sprintf("an Event %s on %s about %q", reason, object, text), func() bool {
		list, err := e.Cluster.Admin().CoreV1().Events(metav1.NamespaceDefault).List(e.ctx, metav1.ListOptions{
			FieldSelector: "reason=" + reason + ",involvedObject.name=" + object,
		})
		if err != nil {
			return false
		}
		return slices.ContainsFunc(list.Items, func(ev corev1.Event) bool { return strings.Contains(ev.Message, text) })
	})
}

// untilWaiting waits until the status of a window says why a node waits.
func (e *env) untilWaiting(window, node, reason string) {
	e.t.Helper()
	e.until(fmt.Sprintf("window %s to say that node %s waits for %s", window, node, reason), func() bool {
		w, err := e.Client.Windows().Get(e.ctx, window, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(w.Status.Waiting, func(n v1alpha1.WaitingNode) bool {
			return n.Node == node && strings.HasPrefix(n.Reason, reason)
		})
	})
}

// never fails where a condition comes to hold within a time in which it would.
func (e *env) never(what string, within time.Duration, holds func() bool) {
	e.t.Helper()
	end := time.After(within)
	for {
		changed := e.History.Changed()
		e.fold()
		if holds() {
			e.t.Fatal(what)
		}
		select {
		case <-changed:
		case <-end:
			return
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
