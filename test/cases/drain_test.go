package cases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/test/history"
	"ganglion.dev/test/sim"
)

func noPreflight(s *spec) {
	no := false
	s.Drain.Preflight = &no
}

// apply applies objects and takes them away after the test.
func (e *env) apply(objects string) {
	e.t.Helper()
	must(e.t, e.Cluster.ApplyYAML(e.ctx, objects))
	e.t.Cleanup(func() {
		for object := range strings.SplitSeq(objects, "\n---\n") {
			var kind, name string
			for line := range strings.SplitSeq(object, "\n") {
				fmt.Sscanf(line, "kind: %s", &kind)
				if name == "" {
					if _, after, found := strings.Cut(line, "name: "); found && strings.HasPrefix(line, "metadata: ") {
						fmt.Sscan(after, &name)
					}
				}
			}
			name = strings.TrimRight(name, ",}")
			if _, err := e.Cluster.Kubectl(e.ctx, "delete", kind, name, "--force", "--grace-period=0", "--ignore-not-found", "--wait=false"); err != nil {
				e.t.Error(err)
			}
		}
	})
}

func budget(name, app, limit string) string {
	return fmt.Sprintf("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: %s}\nspec: {%s, selector: {matchLabels: {app: %s}}}\n", name, limit, app)
}

// loose is a pod without a controller on a node.
func loose(name, node, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %s}}\nspec: {nodeName: %s, terminationGracePeriodSeconds: 0, containers: [{name: a, image: a}]%s}\n", name, name, node, more)
}

// evictions counts the evictions that were asked for, not the dry ones alone, by pod.
func (e *env) evictions(pod string, code int) int {
	e.t.Helper()
	requests, err := e.Cluster.Requests()
	must(e.t, err)
	n := 0
	for _, r := range requests {
		if r.Subresource == "eviction" && r.Name == pod && (code == 0 || r.Code == code) {
			n++
		}
	}
	return n
}

func (e *env) untilRunning(pod, node string) types.UID {
	e.t.Helper()
	var uid types.UID
	e.until(fmt.Sprintf("pod %s to run on %s", pod, node), func() bool {
		for _, p := range e.Sim.Pods(node) {
			if p.Name == pod && p.Status.Phase == corev1.PodRunning {
				uid = p.UID
				return true
			}
		}
		return false
	})
	return uid
}

func TestC17WhileItsEvictionIsRefusedAPodComesBackUnderItsNameOnAnotherNodeThatOneIsNotTouchedAndTheDrainEnds(t *testing.T) {
	e := start(t, 2, noPreflight)
	e.cordon("node-b") // so that the first pod runs on node-a
	e.apply("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: c17}\nspec: {serviceName: c17, selector: {matchLabels: {app: c17}}, template: {metadata: {labels: {app: c17}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: a, image: a}]}}}\n---\n" +
		budget("c17", "c17", "minAvailable: 1"))
	e.untilRunning("c17-0", "node-a")
	e.patch("node-b", `{"spec":{"unschedulable":null}}`)
	e.touch("node-a")
	e.untilEvent("node-a", kube.EventDrainBlocked, "default/c17-0")
	must(t, e.Cluster.Admin().CoreV1().Pods("default").Delete(e.ctx, "c17-0", metav1.DeleteOptions{}))
	uid := e.untilRunning("c17-0", "node-b")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	if now := e.untilRunning("c17-0", "node-b"); now != uid {
		t.Error("the pod on the other node was replaced")
	}
}

func TestC18ARefusedEvictionFor30sAHandfulOfRequestsAPod(t *testing.T) {
	e := start(t, 1, func(s *spec) { noPreflight(s); s.Drain.Timeout.Duration = 30 * time.Second })
	e.apply(loose("c18", "node-a", "") + "---\n" + budget("c18", "c18", "minAvailable: 1"))
	e.untilRunning("c18", "node-a")
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeDrainFailed)
	if n := e.evictions("c18", 429); n < 2 || n > 6 {
		t.Errorf("%d evictions were refused in 30 s", n)
	}
}

func TestC19APodThatIsTerminatingIsWaitedForAndNotEvictedAgain(t *testing.T) {
	e := start(t, 1, noPreflight)
	must(t, e.Sim.AddWorkloads(e.ctx, sim.Workload{Name: "c19", Replicas: 1, StopDelay: "8s", MaxUnavailable: "0"}))
	var pod *corev1.Pod
	e.until("the pod", func() bool {
		for _, p := range e.Sim.Pods("node-a") {
			if p.Labels["app"] == "c19" {
				pod = p
			}
		}
		return pod != nil
	})
	e.cordon("node-a") // so that its successor does not come here
	must(t, e.Cluster.Admin().CoreV1().Pods(pod.Namespace).Delete(e.ctx, pod.Name, metav1.DeleteOptions{}))
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	if n := e.evictions(pod.Name, 0); n != 0 {
		t.Errorf("%d evictions of a pod that was terminating", n)
	}
}

func TestC19APodThatNeverEndsIsNotWaitedForForEverWhereSkipWaitForDeleteTimeoutSaysSo(t *testing.T) {
	e := start(t, 1, func(s *spec) { s.Drain.SkipWaitForDeleteTimeout.Duration = 4 * time.Second })
	e.checked = false // drained is said with a pod on the node: that is what is asked for
	e.apply(strings.Replace(loose("c19-never", "node-a", ""), "metadata: {", "metadata: {finalizers: [ganglion.dev/test], ", 1))
	e.t.Cleanup(func() {
		_, err := e.Cluster.Admin().CoreV1().Pods("default").Patch(e.ctx, "c19-never", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	e.untilRunning("c19-never", "node-a")
	e.touch("node-a")
	started := time.Now()
	e.untilPhase("node-a", protocol.PhaseReboot)
	if took := time.Since(started); took < 4*time.Second {
		t.Errorf("it was over after %s", took)
	}
	e.untilReleased("node-a", protocol.OutcomeRebooted)
}

func TestC20OnePodIsLeftWhenTimeIsUpNeverDrained(t *testing.T) {
	e := start(t, 1, func(s *spec) { s.Drain.Timeout.Duration = 3 * time.Second })
	e.stubborn("node-a")
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeDrainFailed)
	for _, event := range e.History.Events() {
		if n, is := history.Node(event); is && n.State.Drainer.Step == protocol.Drained {
			t.Fatal("drained was said with a pod on the node")
		}
	}
}

func TestC21TwoBudgetsOnOnePodAreNamedAsTheReason(t *testing.T) {
	e := start(t, 1, nil)
	e.apply(loose("c21-two", "node-a", "") + "---\n" + budget("c21-a", "c21-two", "minAvailable: 0") + "---\n" + budget("c21-b", "c21-two", "minAvailable: 0"))
	e.untilRunning("c21-two", "node-a")
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeDrainFailed)
	e.untilEvent("node-a", kube.EventDrainFailed, "more than one PodDisruptionBudget")
}

func TestC21APodWithoutAControllerAndOneWithEmptyDirDataAreEvicted(t *testing.T) {
	e := start(t, 1, nil)
	e.apply(loose("c21-loose", "node-a", "") + "---\n" + loose("c21-data", "node-a", ", volumes: [{name: d, emptyDir: {}}]"))
	e.untilRunning("c21-loose", "node-a")
	e.untilRunning("c21-data", "node-a")
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	for _, pod := range []string{"c21-loose", "c21-data"} {
		if n := e.evictions(pod, 201); n != 2 { // one of them dry
			t.Errorf("%d evictions of %s", n, pod)
		}
	}
}

func TestC21APodWithEmptyDirDataMakesTheDrainFailWhereItsDataIsToBeKept(t *testing.T) {
	e := start(t, 1, func(s *spec) { no := false; s.Drain.DeleteEmptyDirData = &no })
	e.apply(loose("c21-keep", "node-a", ", volumes: [{name: d, emptyDir: {}}]"))
	e.untilRunning("c21-keep", "node-a")
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeDrainFailed)
	e.untilEvent("node-a", kube.EventDrainFailed, "c21-keep")
	for _, event := range e.History.Events() {
		if n, is := history.Node(event); is && n.Unschedulable {
			t.Fatal("the node was cordoned")
		}
	}
}

func TestC21DaemonSetsPodsAndFinishedPodsAreLeftAlone(t *testing.T) {
	e := start(t, 1, nil)
	e.apply("apiVersion: batch/v1\nkind: Job\nmetadata: {name: c21-done}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}\n")
	var finished string
	e.until("the Job's pod to have finished", func() bool {
		for _, p := range e.Sim.Pods("node-a") {
			if p.Labels["batch.kubernetes.io/job-name"] == "c21-done" && p.Status.Phase == corev1.PodSucceeded {
				finished = p.Name
			}
		}
		return finished != ""
	})
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	if n := e.evictions(finished, 0); n != 0 {
		t.Errorf("%d evictions of a finished pod", n)
	}
	for _, p := range e.Sim.Pods("node-a") {
		if strings.HasPrefix(p.Name, "detector-") && e.evictions(p.Name, 0) != 0 {
			t.Errorf("evictions of %s", p.Name)
		}
	}
}

func TestOnlyThePodsOfThePodSelectorAreEvicted(t *testing.T) {
	e := start(t, 1, func(s *spec) {
		s.Drain.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "picked"}}
	})
	e.apply(loose("picked", "node-a", "") + "---\n" + loose("spared", "node-a", ""))
	e.untilRunning("picked", "node-a")
	e.untilRunning("spared", "node-a")
	e.touch("node-a")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	if picked, spared := e.evictions("picked", 201), e.evictions("spared", 0); picked != 2 || spared != 0 {
		t.Errorf("%d evictions of the one that is picked, %d of the other", picked, spared)
	}
}

func TestC22RefusedForAWhileThenAllowedSuccess(t *testing.T) {
	e := start(t, 1, noPreflight)
	e.apply(loose("c22", "node-a", "") + "---\n" + budget("c22", "c22", "minAvailable: 1"))
	e.untilRunning("c22", "node-a")
	e.touch("node-a")
	e.untilEvent("node-a", kube.EventDrainBlocked, "default/c22")
	_, err := e.Cluster.Admin().PolicyV1().PodDisruptionBudgets("default").Patch(e.ctx, "c22", types.MergePatchType,
		[]byte(`{"spec":{"minAvailable":0}}`), metav1.PatchOptions{})
	must(t, err)
	e.untilReleased("node-a", protocol.OutcomeRebooted)
}
