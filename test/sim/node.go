package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// NodeSpec is a node to be made.
type NodeSpec struct {
	Name         string
	Zone         string // label topology.kubernetes.io/zone; none where it is empty
	ControlPlane bool   // label node-role.kubernetes.io/control-plane
	Labels       map[string]string
	Pods         string // allocatable; "110" where it is empty
	CPU          string // "8"
	Memory       string // "32Gi"
}

// AddNodes makes nodes and their machines, and waits until the nodes are Ready
// and can be scheduled on.
func (s *Sim) AddNodes(ctx context.Context, specs []NodeSpec) error {
	byName := map[string]NodeSpec{}
	var names []string
	for _, spec := range specs {
		byName[spec.Name] = spec
		names = append(names, spec.Name)
	}
	if err := s.each(names, func(name string) error { return s.addNode(ctx, byName[name]) }); err != nil {
		return err
	}
	return s.Until(ctx, "all new nodes are Ready", func() bool {
		for _, name := range names {
			if node := s.Node(name); node == nil || !Ready(node) || len(node.Spec.Taints) > 0 {
				return false
			}
		}
		return true
	})
}

func (s *Sim) addNode(ctx context.Context, spec NodeSpec) error {
	m := newMachine(s, spec)
	s.mu.Lock()
	taken := s.machines[spec.Name] != nil
	if !taken {
		s.machines[spec.Name] = m
	}
	s.mu.Unlock()
	if taken {
		return fmt.Errorf("adding node %s: it is there already", spec.Name)
	}
	err := m.install()
	if err == nil {
		_, err = s.client.CoreV1().Nodes().Create(ctx, spec.object(m.BootID()), metav1.CreateOptions{})
	}
	if err != nil {
		m.killAll()
		s.forget(spec.Name)
		return fmt.Errorf("adding node %s: %w", spec.Name, err)
	}
	s.running.Go(m.run)
	return nil
}

func (s *Sim) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.machines, name)
}

func (spec NodeSpec) object(bootID string) *corev1.Node {
	labels := map[string]string{hostnameLabel: spec.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
	if spec.Zone != "" {
		labels[zoneLabel] = spec.Zone
	}
	if spec.ControlPlane {
		labels[controlPlane] = ""
	}
	for k, v := range spec.Labels {
		labels[k] = v
	}
	quantity := func(value, otherwise string) resource.Quantity {
		if value == "" {
			value = otherwise
		}
		return resource.MustParse(value)
	}
	resources := corev1.ResourceList{
		corev1.ResourcePods:   quantity(spec.Pods, "110"),
		corev1.ResourceCPU:    quantity(spec.CPU, "8"),
		corev1.ResourceMemory: quantity(spec.Memory, "32Gi"),
	}
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: "Simulated", LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Labels: labels, Annotations: map[string]string{kwokAnnotation: "fake"}},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: spec.Name}},
			NodeInfo:  corev1.NodeSystemInfo{BootID: bootID, OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v1.37.2-sim", OSImage: "Simulated"},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, corev1.ConditionTrue),
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse),
			},
		},
	}
}

// Ready tells whether a node is Ready.
func Ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// DeleteNode takes a machine away and deletes its Node object and the pods on it.
func (s *Sim) DeleteNode(ctx context.Context, name string) error {
	m, err := s.machine(name)
	if err != nil {
		return err
	}
	m.stop()
	s.forget(name)
	err = ignoreNotFound(s.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
	if err == nil {
		err = s.Until(ctx, "node "+name+" is gone", func() bool { return s.Node(name) == nil })
	}
	for _, pod := range s.Pods(name) { // the controller manager would, within a minute
		now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
		err = errors.Join(err, ignoreNotFound(s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, now)))
	}
	if err != nil {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	return nil
}

// RecreateNode deletes a node and makes it anew: the same name, another UID,
// another boot, no sentinel. Its history goes on.
func (s *Sim) RecreateNode(ctx context.Context, name string) error {
	old, err := s.machine(name)
	if err != nil {
		return err
	}
	if err := s.DeleteNode(ctx, name); err != nil {
		return err
	}
	if err := os.RemoveAll(s.path(name)); err != nil {
		return fmt.Errorf("recreating node %s: %w", name, err)
	}
	if err := s.AddNodes(ctx, []NodeSpec{old.spec}); err != nil {
		return err
	}
	anew, err := s.machine(name)
	if err != nil {
		return err
	}
	anew.mu.Lock()
	anew.history = append(old.Reboots(), anew.history...)
	anew.mu.Unlock()
	return nil
}

// TouchSentinel says on the node's disk that it needs a reboot, because of these packages.
func (s *Sim) TouchSentinel(node string, pkgs ...string) error {
	if _, err := s.machine(node); err != nil {
		return err
	}
	if len(pkgs) > 0 {
		if err := os.WriteFile(s.Sentinel(node)+".pkgs", []byte(strings.Join(pkgs, "\n")+"\n"), 0o644); err != nil {
			return fmt.Errorf("touching the sentinel of %s: %w", node, err)
		}
	}
	if err := os.WriteFile(s.Sentinel(node), []byte("*** System restart required ***\n"), 0o644); err != nil {
		return fmt.Errorf("touching the sentinel of %s: %w", node, err)
	}
	return nil
}

// RemoveSentinel takes the sentinel away, where there is one.
func (s *Sim) RemoveSentinel(node string) error {
	for _, file := range []string{s.Sentinel(node), s.Sentinel(node) + ".pkgs"} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing the sentinel of %s: %w", node, err)
		}
	}
	return nil
}

// Sentinel is the path of a node's sentinel file.
func (s *Sim) Sentinel(node string) string { return s.path(node, "sentinel", sentinelFile) }

// SetReady writes a node's Ready condition.
func (s *Sim) SetReady(ctx context.Context, node string, ready bool) error {
	status, reason := corev1.ConditionFalse, "KubeletNotReady"
	if ready {
		status, reason = corev1.ConditionTrue, "KubeletReady"
	}
	now := metav1.Now()
	return s.patchNode(ctx, node, map[string]any{"conditions": []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now},
	}})
}

// FlapReady makes a node NotReady and Ready again so many times, in the same boot.
func (s *Sim) FlapReady(ctx context.Context, node string, times int) error {
	for range times {
		for _, ready := range []bool{false, true} {
			if err := s.SetReady(ctx, node, ready); err != nil {
				return err
			}
		}
	}
	return nil
}

// patchNode writes fields of a node's status.
func (s *Sim) patchNode(ctx context.Context, node string, fields map[string]any) error {
	patch, err := json.Marshal(map[string]any{"status": fields})
	if err != nil {
		return fmt.Errorf("encoding the status of node %s: %w", node, err)
	}
	_, err = s.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("writing the status of node %s: %w", node, err)
	}
	return nil
}

func newBootID() string { return string(uuid.NewUUID()) }
