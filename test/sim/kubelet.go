package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ganglion.dev/test/cluster"
)

// retryAfter is how soon the kubelet tries again what failed, and restarts what ended.
const retryAfter = time.Second

// detector is the container of the detector's pod.
type detector struct {
	pod     types.UID
	process *cluster.Process
	began   time.Time
}

// kubelet looks after the pods of the node while the host is up. After a reboot it
// first reports the new boot, and then, in a write of its own, that the node is Ready.
func (m *machine) kubelet(ctx context.Context, rebooted bool) {
	up := time.NewTimer(0)
	defer up.Stop()
	if rebooted {
		err := insist(ctx, func(ctx context.Context) error {
			return m.sim.patchNode(ctx, m.name, map[string]any{"nodeInfo": map[string]string{"bootID": m.BootID()}})
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return // the host went down again
		}
		up.Reset(m.behaves().NotReadyFor)
	}
	ready := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-up.C:
			if rebooted {
				if err := insist(ctx, func(ctx context.Context) error { return m.sim.SetReady(ctx, m.name, true) }); err == nil {
					m.update(func(r *Reboot) { r.Up = time.Now() })
				}
			}
			ready = true
		case <-m.wake:
		}
		if err := m.sync(ctx, ready); err != nil && ctx.Err() == nil {
			m.complain(err)
			m.later(retryAfter)
		}
	}
}

func (m *machine) later(d time.Duration) { time.AfterFunc(d, func() { m.sim.wake(m.name) }) }

// sync brings what runs in line with the pods of the node.
func (m *machine) sync(ctx context.Context, ready bool) error {
	var detectorPod *corev1.Pod
	for _, pod := range m.sim.Pods(m.name) {
		switch {
		case pod.Namespace == nodesNamespace && pod.Labels[grantLabel] != "":
			if err := m.syncReboot(ctx, pod, ready); err != nil {
				return err
			}
		case pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning:
		case ready && !podReady(pod):
			// the node's being NotReady made it so; see the node lifecycle controller's MarkPodsNotReady
			if node := m.sim.Node(m.name); node != nil && Ready(node) {
				if err := m.reportPod(ctx, pod, map[string]any{"conditions": readyConditions(corev1.ConditionTrue)}); err != nil {
					return err
				}
			}
			fallthrough
		default:
			if owner := metav1.GetControllerOf(pod); pod.Namespace == nodesNamespace && owner != nil && owner.Kind == "DaemonSet" && owner.Name == detectorName {
				detectorPod = pod
			}
		}
	}
	return m.syncDetector(ctx, detectorPod)
}

// syncDetector runs the detector while it has a pod, with a token of that very pod.
func (m *machine) syncDetector(ctx context.Context, pod *corev1.Pod) error {
	path := m.sim.options.Binaries[detectorName]
	if path == "" {
		return nil
	}
	m.mu.Lock()
	have := m.detector
	m.mu.Unlock()
	if have != nil && (pod == nil || have.pod != pod.UID) {
		if err := have.process.Terminate(); err != nil {
			return err
		}
		m.setDetector(nil)
		have = nil
	}
	switch {
	case pod == nil:
		return nil
	case have == nil:
		return m.startDetector(ctx, path, pod)
	case have.process.Running():
		return nil
	case time.Since(have.began) < retryAfter:
		m.later(retryAfter) // as a kubelet backs off
		return nil
	}
	if err := have.process.Restart(); err != nil {
		return err
	}
	m.setDetector(&detector{pod: have.pod, process: have.process, began: time.Now()})
	m.wakeAtEnd(have.process)
	return nil
}

func (m *machine) startDetector(ctx context.Context, path string, pod *corev1.Pod) error {
	select {
	case m.sim.starts <- struct{}{}:
		defer func() { <-m.sim.starts }()
	case <-ctx.Done():
		return ctx.Err()
	}
	token, err := m.sim.cluster.Token(ctx, pod.Namespace, pod.Spec.ServiceAccountName, pod)
	if apierrors.IsNotFound(err) {
		return nil // the pod is gone already
	}
	if err != nil {
		return err
	}
	name := detectorName + "-" + m.name
	kubeconfig, err := m.sim.cluster.Kubeconfig(name, token)
	if err != nil {
		return err
	}
	args := append([]string{
		"--sentinel", m.sim.Sentinel(m.name), "--boot-id-file", m.bootIDFile(), "--listen", "127.0.0.1:0", "--kubeconfig", kubeconfig,
	}, m.sim.options.DetectorArgs...)
	env := append([]string{nodeEnv + "=" + m.name}, m.sim.options.DetectorEnv...)
	p, err := m.sim.cluster.Process(name, path, args, env)
	if err != nil {
		return err
	}
	m.setDetector(&detector{pod: pod.UID, process: p, began: time.Now()})
	m.wakeAtEnd(p)
	m.sim.wake(m.name)
	return nil
}

func (m *machine) setDetector(d *detector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.detector = d
}

// wakeAtEnd has the kubelet notice that a process has ended.
func (m *machine) wakeAtEnd(p *cluster.Process) {
	done := p.Done()
	go func() {
		<-done
		m.sim.wake(m.name)
	}()
}

// Detector is the process of a node's detector; nil where none was started. One that
// ends is started again within a second.
func (s *Sim) Detector(node string) *cluster.Process {
	m, err := s.machine(node)
	if err != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.detector == nil {
		return nil
	}
	return m.detector.process
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func readyConditions(status corev1.ConditionStatus) []corev1.PodCondition {
	now := metav1.Now()
	var conditions []corev1.PodCondition
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		conditions = append(conditions, corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: now})
	}
	return conditions
}

// reportPod writes fields of the status of this very pod.
func (m *machine) reportPod(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encoding the status of pod %s: %w", pod.Name, err)
	}
	_, err = m.sim.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // a conflict: another pod of this name
		return fmt.Errorf("writing the status of pod %s: %w", pod.Name, err)
	}
	return nil
}
