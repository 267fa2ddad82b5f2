package cases

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/test/cluster"
	"ganglion.dev/test/history"
	"ganglion.dev/test/sim"
)

var listening = regexp.MustCompile(`"?address"?: ?"([^"]+)"`)

// scrape asks a daemon's HTTP port; what is wrong is in the text.
func (e *env) scrape(p *cluster.Process, path string) string {
	e.t.Helper()
	log, err := os.ReadFile(p.Log())
	must(e.t, err)
	found := listening.FindAllSubmatch(log, -1)
	if found == nil {
		return "it does not listen yet"
	}
	answer, err := http.Get("http://" + string(found[len(found)-1][1]) + path)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Twenty times, at a random moment of a rollout, one daemon at random is killed and
// started again. Every rollout ends the same, with each node rebooted once.
func TestC14ADaemonIsKilledAtAnyTimeTwentyTimesTheRolloutEndsTheSame(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const rollouts, killsEach, nodes = 4, 5, 6
	for i := range rollouts {
		t.Run(fmt.Sprintf("rollout %d", i+1), func(t *testing.T) {
			e := start(t, nodes, maxConcurrent("2"))
			must(t, e.Sim.AddWorkloads(e.ctx, sim.Workload{Name: "web", Replicas: nodes, MaxUnavailable: "2"}))
			e.cordon("node-c")
			e.touchAll(nodes)
			for range killsEach {
				moment := time.After(time.Duration(random.Int64N(int64(1500 * time.Millisecond))))
				victims := []string{"locker", "drainer", "dispatcher", "detector"}
				victim := victims[random.IntN(len(victims))]
				<-moment
				if victim == "detector" {
					if p := e.Sim.Detector(name(random.IntN(nodes))); p != nil {
						must(t, p.Kill()) // the simulated kubelet starts it again
					}
					continue
				}
				t.Logf("killing the %s", victim)
				must(t, e.Daemons[victim].Kill())
				must(t, e.Daemons[victim].Restart())
			}
			e.untilAllRebooted(nodes)
			for i := range nodes {
				if n := e.node(name(i)); n.Unschedulable != (n.Name == "node-c") {
					t.Errorf("node %s: unschedulable %v", n.Name, n.Unschedulable)
				}
			}
		})
	}
}

func TestC41EachDaemonRunsWithTheRightsThatDeployGivesIt(t *testing.T) {
	e := start(t, 1, nil)
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	for name, p := range e.Daemons {
		if got := e.scrape(p, "/readyz"); strings.TrimSpace(got) != "ok" {
			t.Errorf("/readyz of %s says %q", name, got)
		}
		if got := e.scrape(p, "/healthz"); strings.TrimSpace(got) != "ok" {
			t.Errorf("/healthz of %s says %q", name, got)
		}
	}
	// Nothing that a daemon of ours asked for was refused, and all spoke as themselves.
	requests, err := e.Cluster.Requests()
	must(t, err)
	users := map[string]bool{}
	for _, r := range requests {
		if !strings.HasPrefix(r.User, "system:serviceaccount:ganglion-") {
			continue
		}
		users[r.User[len("system:serviceaccount:"):]] = true
		if r.Code == http.StatusForbidden && r.Time.After(time.Now().Add(-time.Minute)) {
			t.Errorf("%s: %s %s/%s %s/%s was forbidden", r.User, r.Verb, r.Resource, r.Subresource, r.Namespace, r.Name)
		}
	}
	for _, want := range []string{"ganglion-nodes:detector", "ganglion-system:locker", "ganglion-system:drainer", "ganglion-system:dispatcher"} {
		if !users[want] {
			t.Errorf("no request of %s", want)
		}
	}
}

func TestC43ARightIsMissingSaidAtStartByNameRetriedNoCrashLoop(t *testing.T) {
	e := start(t, 1, nil)
	admin := e.Cluster.Admin().RbacV1().ClusterRoles()
	role, err := admin.Get(e.ctx, "ganglion-drainer", metav1.GetOptions{})
	must(t, err)
	whole := role.DeepCopy()
	for i, rule := range role.Rules {
		if slices.Contains(rule.Resources, "pods/eviction") {
			role.Rules = slices.Delete(role.Rules, i, i+1)
			break
		}
	}
	_, err = admin.Update(e.ctx, role, metav1.UpdateOptions{})
	must(t, err)
	p := e.Daemons["drainer"]
	must(t, p.Restart())
	e.until("the missing right to be named", func() bool {
		return strings.Contains(e.scrape(p, "/readyz"), "missing right: create pods/eviction")
	})
	if !p.Running() {
		t.Error("the drainer has ended")
	}
	whole.ResourceVersion = ""
	_, err = admin.Update(e.ctx, whole, metav1.UpdateOptions{})
	must(t, err)
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
}

func TestADaemonEndsSoonAfterSIGTERMAndHandsItsLeasesOver(t *testing.T) {
	e := start(t, 1, nil)
	for name, p := range e.Daemons {
		started := time.Now()
		must(t, p.Terminate())
		if took := time.Since(started); took > 5*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
	lease, err := e.Cluster.Admin().CoordinationV1().Leases(protocol.SystemNamespace).Get(e.ctx, "locker", metav1.GetOptions{})
	must(t, err)
	if h := lease.Spec.HolderIdentity; h != nil && *h != "" {
		t.Errorf("the leader's Lease is still held by %q", *h)
	}
	for _, p := range e.Daemons {
		must(t, p.Restart())
	}
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
}

func TestGarbageInAnyAnnotationIsReportedAndLeadsToNoActionOnThatNodeAndTheOthersGoOn(t *testing.T) {
	for _, key := range []string{protocol.LockerKey, protocol.DrainerKey, protocol.RebooterKey} {
		t.Run(key, func(t *testing.T) {
			e := start(t, 2, nil)
			e.annotate("node-a", key, "💥 garbage")
			e.touch("node-a", "node-b")
			e.untilReleased("node-b", protocol.OutcomeRebooted)
			e.untilEvent("node-a", kube.EventRebootWaiting, key)
			e.never("something was done to the node", time.Second, func() bool {
				return e.node("node-a").Unschedulable || e.Sim.Reboots("node-a") > 0
			})
			e.unannotate("node-a", key)
			e.untilReleased("node-a", protocol.OutcomeRebooted)
		})
	}
}

func TestGarbageInALeaseIsReportedAndItsSlotIsNotGivenToAnybody(t *testing.T) {
	e := start(t, 2, maxConcurrent("2"))
	leases := e.Cluster.Admin().CoordinationV1().Leases(protocol.SystemNamespace)
	// Slot 0 of the window is spoiled: held, by a node of no UID.
	if _, err := leases.Get(e.ctx, "default.0", metav1.GetOptions{}); err != nil {
		_, err = leases.Create(e.ctx, newSlot("default.0"), metav1.CreateOptions{})
		must(t, err)
	}
	_, err := leases.Patch(e.ctx, "default.0", types.MergePatchType, []byte(`{"spec":{"holderIdentity":"nobody"},"metadata":{"annotations":null}}`), metav1.PatchOptions{})
	must(t, err)
	e.touch("node-a", "node-b")
	e.untilEvent("default", kube.EventRebootWaiting, "Unreadable")
	e.until("both nodes to be rebooted", func() bool {
		return e.node("node-a").State.Locker.Outcome == protocol.OutcomeRebooted && e.node("node-b").State.Locker.Outcome == protocol.OutcomeRebooted
	})
	for _, n := range []string{"node-a", "node-b"} {
		if g := e.node(n).State.Locker.Grant; g.Index != 1 {
			t.Errorf("node %s went under %s", n, g)
		}
	}
	_, err = leases.Patch(e.ctx, "default.0", types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`), metav1.PatchOptions{})
	must(t, err)
}

func TestAJobOfTheRightNameThatIsNotOursIsReportedAndLeadsToNoActionOnThatNodeAndTheOthersGoOn(t *testing.T) {
	e := start(t, 1, func(s *spec) {
		maxConcurrent("2")(s)
		s.Serialization.IgnoreUnavailable = true
	})
	e.stubborn("node-a") // so that there is time between the grant and the Job
	e.touch("node-a")
	e.untilPhase("node-a", protocol.Draining)
	g := e.node("node-a").State.Locker.Grant
	sum := sha256.Sum256([]byte("node-a\n" + g.String()))
	foreign := fmt.Sprintf("reboot-node-a-%x", sum[:6]) // as the dispatcher will call its own
	must(t, e.Cluster.ApplyYAML(e.ctx, `{apiVersion: batch/v1, kind: Job, metadata: {name: `+foreign+`, namespace: ganglion-nodes, labels: {ganglion.dev/grant: other.0.1}},
		spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}`))
	for _, pod := range e.Sim.Pods("node-a") {
		if strings.HasPrefix(pod.Name, "stubborn") {
			must(t, e.Cluster.Admin().CoreV1().Pods(pod.Namespace).Delete(e.ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
		}
	}
	e.untilPhase("node-a", protocol.PhaseReboot)
	e.untilEvent("node-a", kube.EventRebootStalled, "was not made for this grant")
	e.addNodes(sim.NodeSpec{Name: "node-b"})
	e.touch("node-b")
	e.untilReleased("node-b", protocol.OutcomeRebooted)
	if e.Sim.Reboots("node-a") != 0 {
		t.Error("the node was rebooted")
	}
	must(t, e.Cluster.Admin().BatchV1().Jobs(protocol.NodesNamespace).Delete(e.ctx, foreign, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
	e.untilReleased("node-a", protocol.OutcomeRebooted)
}

func TestAGrantThatNoLeaseBacksLeadsToNothingAndIsUndone(t *testing.T) {
	e := start(t, 1, nil)
	e.checked = false // the test writes what only the locker may
	e.annotate("node-a", protocol.LockerKey, "granted default.0.99999")
	e.untilReleased("node-a", protocol.OutcomeRevoked)
	for _, event := range e.History.Events() {
		if n, is := history.Node(event); is && n.Unschedulable {
			t.Fatal("the node was cordoned")
		}
	}
	if e.Sim.Reboots("node-a") != 0 {
		t.Error("the node was rebooted")
	}
}

func TestAProcedureThatDoesNotExistFailsTheCycleBeforeAnythingIsCordonedWithThatReason(t *testing.T) {
	e := start(t, 1, func(s *spec) { s.Reboot.Procedure = "no-such" })
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeDrainFailed)
	e.untilEvent("node-a", kube.EventDrainFailed, `RebootProcedure "no-such" does not exist`)
	for _, event := range e.History.Events() {
		if n, is := history.Node(event); is && n.Unschedulable {
			t.Fatal("the node was cordoned")
		}
	}
}

func TestAWindowThatUsesWhatIsNotBuiltYetSaysSoAndGrantsNothingAndOthersGoOn(t *testing.T) {
	e := start(t, 1, nil)
	e.setWindow("later", func(s *spec) {
		s.Priority = 10
		s.Gates.BeforeDrain = append(s.Gates.BeforeDrain, "backup")
	})
	e.until("the window to say so", func() bool {
		w, err := e.Client.Windows().Get(e.ctx, "later", metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, c := range w.Status.Conditions {
			if c.Type == "Valid" {
				return c.Status == metav1.ConditionFalse && c.Reason == "NotImplemented" && strings.Contains(c.Message, "spec.gates.beforeDrain")
			}
		}
		return false
	})
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	if got := e.node("node-a").State.Locker.Grant.Window; got != "default" {
		t.Errorf("it was granted by window %s", got)
	}
}

func TestKubectlGetNMWShowsWhatGoesOn(t *testing.T) {
	e := start(t, 2, nil, behaving(sim.Behavior{StaysDown: true}))
	e.touch("node-a", "node-b")
	e.until("the table to show it", func() bool {
		text, err := e.Cluster.Kubectl(e.ctx, "get", "nmw", "default")
		if err != nil {
			return false
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		return len(lines) == 2 && slices.Equal(strings.Fields(lines[0]), []string{"NAME", "OPEN", "UNTIL/NEXT", "NEED", "IN-FLIGHT", "MAX", "REASON", "AGE"}) &&
			slices.Equal(strings.Fields(lines[1])[:7], []string{"default", "True", "always", "2", "1", "1", "InProgress"})
	})
}
