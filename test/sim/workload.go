package sim

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Workload is a Deployment on the simulated nodes, spread over them, with a disruption budget.
type Workload struct {
	Namespace string // made where it is not there; "default" where it is empty
	Name      string
	Replicas  int
	Labels    map[string]string // of the pods, besides app=<Name>
	// MaxUnavailable or MinAvailable of the budget, a count or a percentage; no budget
	// where both are empty.
	MaxUnavailable, MinAvailable string
	// Zones spreads over zones too.
	Zones bool
	// StopDelay is how long each pod takes to end, such as "2s"; none where it is empty.
	StopDelay string
}

// AddWorkloads makes workloads and waits until all of their replicas are Ready.
func (s *Sim) AddWorkloads(ctx context.Context, workloads ...Workload) error {
	for _, w := range workloads {
		if err := s.addWorkload(ctx, w); err != nil {
			return fmt.Errorf("adding workload %s/%s: %w", w.namespace(), w.Name, err)
		}
	}
	return s.Until(ctx, "all replicas of the workloads are Ready", func() bool {
		for _, w := range workloads {
			if s.readyReplicas(w) < w.Replicas {
				return false
			}
		}
		return true
	})
}

func (w Workload) namespace() string {
	if w.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return w.Namespace
}

func (s *Sim) readyReplicas(w Workload) int {
	n := 0
	for _, obj := range s.pods.GetStore().List() {
		if pod := obj.(*corev1.Pod); pod.Namespace == w.namespace() && pod.Labels["app"] == w.Name && pod.DeletionTimestamp == nil && podReady(pod) {
			n++
		}
	}
	return n
}

func (s *Sim) addWorkload(ctx context.Context, w Workload) error {
	ns := w.namespace()
	_, err := s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	s.mu.Lock()
	s.workloads = append(s.workloads, w)
	s.mu.Unlock()
	if _, err := s.client.AppsV1().Deployments(ns).Create(ctx, w.deployment(), metav1.CreateOptions{}); err != nil {
		return err
	}
	if w.MaxUnavailable == "" && w.MinAvailable == "" {
		return nil
	}
	_, err = s.client.PolicyV1().PodDisruptionBudgets(ns).Create(ctx, w.budget(), metav1.CreateOptions{})
	return err
}

func (s *Sim) deleteWorkload(ctx context.Context, w Workload) error {
	background := metav1.DeletePropagationBackground
	return errors.Join(
		ignoreNotFound(s.client.AppsV1().Deployments(w.namespace()).Delete(ctx, w.Name, metav1.DeleteOptions{PropagationPolicy: &background})),
		ignoreNotFound(s.client.PolicyV1().PodDisruptionBudgets(w.namespace()).Delete(ctx, w.Name, metav1.DeleteOptions{})),
	)
}

func (w Workload) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.Name}}
}

func (w Workload) deployment() *appsv1.Deployment {
	labels := map[string]string{"app": w.Name}
	for k, v := range w.Labels {
		labels[k] = v
	}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		Containers:                    []corev1.Container{{Name: "main", Image: "workload"}},
		TerminationGracePeriodSeconds: new(int64(1)),
	}}
	if w.StopDelay != "" {
		template.Annotations = map[string]string{"sim.ganglion.dev/stop-delay": w.StopDelay}
		template.Spec.TerminationGracePeriodSeconds = new(int64(600))
	}
	spread := []string{hostnameLabel}
	if w.Zones {
		spread = append(spread, zoneLabel)
	}
	for _, key := range spread {
		template.Spec.TopologySpreadConstraints = append(template.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: w.selector(),
		})
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(w.Replicas)), Selector: w.selector(), Template: template},
	}
}

func (w Workload) budget() *policyv1.PodDisruptionBudget {
	value := func(text string) *intstr.IntOrString {
		if text == "" {
			return nil
		}
		return new(intstr.Parse(text))
	}
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: w.Name}, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: w.selector(), MaxUnavailable: value(w.MaxUnavailable), MinAvailable: value(w.MinAvailable),
	}}
}
