package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ganglion.dev/test/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{}) }

// deadline is for each step: far more than any takes.
const deadline = 30 * time.Second

// newSim makes a simulation with stand-ins for the detector and the rebooter.
func newSim(t *testing.T, nodes ...NodeSpec) *Sim {
	t.Helper()
	c := cluster.Shared(t)
	manifest, err := os.ReadFile("testdata/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ApplyYAML(t.Context(), string(manifest)); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(c, Options{Binaries: map[string]string{
		"detector": filepath.Join(dir, "detector.sh"), "rebooter": filepath.Join(dir, "rebooter.sh"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := c.Healthy(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := s.AddNodes(ctx, nodes); err != nil {
		t.Fatal(err)
	}
	return s
}

func until(t *testing.T, s *Sim, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := s.Until(ctx, what, holds); err != nil {
		t.Fatalf("%v; complaints: %v", err, errors.Join(s.Complaints()...))
	}
}

// reboot makes a reboot Job as the dispatcher does.
func reboot(t *testing.T, s *Sim, node, grant string) {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "reboot-" + node + "-" + grant, Labels: map[string]string{grantLabel: grant}}}
	job.Spec.BackoffLimit = new(int32(0))
	job.Spec.Template.Labels = job.Labels
	job.Spec.Template.Spec = corev1.PodSpec{
		NodeName: node, RestartPolicy: corev1.RestartPolicyNever, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "rebooter", Image: "ko://ganglion.dev/rebooter/cmd/rebooter", Args: []string{"--boot-id=$(GANGLION_BOOT_ID)"},
			Env: []corev1.EnvVar{{Name: nodeEnv, Value: node}, {Name: "GANGLION_BOOT_ID", Value: s.BootID(node)}, {Name: "GANGLION_GRANT", Value: grant}},
		}},
	}
	if _, err := s.client.BatchV1().Jobs(nodesNamespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// rebootPod is the reboot Job's pod on a node; nil where there is none.
func rebootPod(s *Sim, node string) *corev1.Pod {
	for _, pod := range s.Pods(node) {
		if pod.Labels[grantLabel] != "" {
			return pod
		}
	}
	return nil
}

func podPhase(s *Sim, node string, phase corev1.PodPhase) func() bool {
	return func() bool { pod := rebootPod(s, node); return pod != nil && pod.Status.Phase == phase }
}

func isUp(s *Sim, node string, reboots int) func() bool {
	return func() bool {
		h := s.History(node)
		return len(h) == reboots && !h[reboots-1].Up.IsZero() && Ready(s.Node(node)) && s.Node(node).Status.NodeInfo.BootID == s.BootID(node)
	}
}

func TestNodesRunDetectorsAndSpreadWorkloads(t *testing.T) {
	var specs []NodeSpec
	for i := range 5 {
		specs = append(specs, NodeSpec{Name: fmt.Sprintf("spread-%d", i), Zone: fmt.Sprintf("zone-%d", i%3)})
	}
	s := newSim(t, specs...)
	until(t, s, "every node has a detector", func() bool {
		for _, spec := range specs {
			if d := s.Detector(spec.Name); d == nil || !d.Running() {
				return false
			}
		}
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := s.AddWorkloads(ctx, Workload{Namespace: "shop", Name: "web", Replicas: 10, MaxUnavailable: "1", Zones: true}); err != nil {
		t.Fatal(err)
	}
	perNode := map[string]int{}
	for _, spec := range specs {
		for _, pod := range s.Pods(spec.Name) {
			if pod.Namespace == "shop" {
				perNode[spec.Name]++
			}
		}
	}
	if len(perNode) != 5 {
		t.Errorf("workload is on %d nodes, want all 5: %v", len(perNode), perNode)
	}
	before := s.Detector("spread-0").Pid()
	if err := s.Detector("spread-0").Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, s, "a killed detector runs again", func() bool {
		d := s.Detector("spread-0")
		return d.Running() && d.Pid() != before
	})
}

func TestRebootPodTakesTheHostDownAndIsReportedAfterwards(t *testing.T) {
	s := newSim(t, NodeSpec{Name: "plain"})
	if err := s.TouchSentinel("plain", "linux-image", "libc6"); err != nil {
		t.Fatal(err)
	}
	until(t, s, "it has a detector", func() bool { return s.Detector("plain") != nil })
	first, before := s.Detector("plain").Pid(), s.BootID("plain")
	reboot(t, s, "plain", "w.0.1")
	until(t, s, "the host is up again", isUp(s, "plain", 1))
	until(t, s, "its pod has failed", podPhase(s, "plain", corev1.PodFailed))
	until(t, s, "another detector runs", func() bool {
		d := s.Detector("plain")
		return d != nil && d.Running() && d.Pid() != first
	})
	until(t, s, "its pods are Ready again", func() bool {
		for _, pod := range s.Pods("plain") {
			if pod.Labels["app"] == "detector" && !podReady(pod) {
				return false
			}
		}
		return true
	})
	got := s.History("plain")[0]
	want := Reboot{Node: "plain", Grant: "w.0.1", Expected: before, Before: before, After: s.BootID("plain"), Down: got.Down, Up: got.Up}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if got.Before == got.After {
		t.Error("the boot id is the same after the reboot")
	}
	if _, err := os.Stat(s.Sentinel("plain")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the sentinel after the reboot: %v", err)
	}
	if log := s.Detector("plain").LogTail(1); !strings.HasPrefix(log, "node=plain --sentinel "+s.Sentinel("plain")) {
		t.Errorf("the detector was called as %q", log)
	}
	if complaints := s.Complaints(); len(complaints) > 0 {
		t.Errorf("complaints: %v", complaints)
	}
}

func TestRebootPodRunAgainDoesNothing(t *testing.T) {
	s := newSim(t, NodeSpec{Name: "again"})
	if err := s.SetBehavior("again", func(b *Behavior) { b.RerunPod, b.SentinelSurvives, b.NotReadyFor = true, true, 200*time.Millisecond }); err != nil {
		t.Fatal(err)
	}
	if err := s.TouchSentinel("again"); err != nil {
		t.Fatal(err)
	}
	reboot(t, s, "again", "w.0.2")
	until(t, s, "its pod has succeeded", podPhase(s, "again", corev1.PodSucceeded))
	h := s.History("again")
	if len(h) != 1 || h[0].Rerun == nil || *h[0].Rerun != 0 {
		t.Errorf("history %+v, want one reboot, and exit code 0 of the second run", h)
	}
	if _, err := os.Stat(s.Sentinel("again")); err != nil {
		t.Errorf("the sentinel, which survives: %v", err)
	}
}

func TestHostThatDoesNotRebootStaysInItsBoot(t *testing.T) {
	s := newSim(t, NodeSpec{Name: "deaf"})
	before := s.BootID("deaf")
	if err := s.SetBehavior("deaf", func(b *Behavior) { b.RebootDoesNothing = true }); err != nil {
		t.Fatal(err)
	}
	reboot(t, s, "deaf", "w.0.3")
	until(t, s, "its pod has ended", func() bool {
		pod := rebootPod(s, "deaf")
		return pod != nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
	})
	if s.Reboots("deaf") != 0 || s.BootID("deaf") != before {
		t.Errorf("%d reboots, boot id %s, before %s", s.Reboots("deaf"), s.BootID("deaf"), before)
	}
}

func TestHostStaysDownUntilItReturns(t *testing.T) {
	s := newSim(t, NodeSpec{Name: "lost"})
	if err := s.SetBehavior("lost", func(b *Behavior) { b.StaysDown = true }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := s.Crash(ctx, "lost"); err != nil {
		t.Fatal(err)
	}
	until(t, s, "it is NotReady", func() bool { return s.Down("lost") && !Ready(s.Node("lost")) })
	if err := s.Return("lost"); err != nil {
		t.Fatal(err)
	}
	until(t, s, "it is back", isUp(s, "lost", 1))
}

func TestDeletedRebootPodGoesWhenItsProcessHas(t *testing.T) {
	s := newSim(t, NodeSpec{Name: "cancelled"})
	if err := s.SetBehavior("cancelled", func(b *Behavior) { b.RebootHangs = true }); err != nil {
		t.Fatal(err)
	}
	reboot(t, s, "cancelled", "w.0.4")
	until(t, s, "its pod runs", podPhase(s, "cancelled", corev1.PodRunning))
	foreground := metav1.DeletePropagationForeground
	if err := s.client.BatchV1().Jobs(nodesNamespace).Delete(t.Context(), "reboot-cancelled-w.0.4", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	until(t, s, "its pod is gone", func() bool { return rebootPod(s, "cancelled") == nil })
	if s.Reboots("cancelled") != 0 {
		t.Error("the host went down")
	}
}

func TestRecreatedNodeHasAnotherUIDAndBoot(t *testing.T) {
	s := newSim(t, NodeSpec{Name: "phoenix", Zone: "a"})
	uid, boot := s.Node("phoenix").UID, s.BootID("phoenix")
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := s.RecreateNode(ctx, "phoenix"); err != nil {
		t.Fatal(err)
	}
	if node := s.Node("phoenix"); node.UID == uid || s.BootID("phoenix") == boot || node.Labels[zoneLabel] != "a" {
		t.Errorf("UID %s, before %s; boot %s, before %s; labels %v", node.UID, uid, s.BootID("phoenix"), boot, node.Labels)
	}
}

func TestHostRebootsThroughAnOutageOfTheAPIServer(t *testing.T) {
	s := newSim(t, NodeSpec{Name: "offline"})
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := s.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := s.Crash(ctx, "offline"); err != nil {
		t.Error(err)
	}
	if err := s.cluster.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, s, "its node is Ready in its new boot", isUp(s, "offline", 1))
}

func TestReadyFlapsWithoutAnotherBoot(t *testing.T) {
	s := newSim(t, NodeSpec{Name: "flapping"})
	boot := s.BootID("flapping")
	if err := s.FlapReady(t.Context(), "flapping", 3); err != nil {
		t.Fatal(err)
	}
	until(t, s, "it is Ready", func() bool { return Ready(s.Node("flapping")) })
	if s.BootID("flapping") != boot || s.Node("flapping").Status.NodeInfo.BootID != boot {
		t.Error("its boot id has changed")
	}
}
