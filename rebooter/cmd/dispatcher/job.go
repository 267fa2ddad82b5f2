package main

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

// Labels that mark Jobs and their pods as ours.
const (
	managedByKey = "app.kubernetes.io/managed-by"
	managedBy    = "ganglion"
)

// jobName is the name of the one Job of a grant of a node: it begins with what a
// person can read of the node, and fits into a label.
func jobName(node string, g protocol.Grant) string {
	sum := sha256.Sum256([]byte(node + "\n" + g.String()))
	readable := strings.Map(func(r rune) rune {
		if r == '.' {
			return '-'
		}
		return r
	}, node)
	return fmt.Sprintf("reboot-%.36s-%x", readable, sum[:6])
}

// newJob makes the Job of a grant from its procedure. keep is how long its record
// has to outlive its end at least, lest a Job that has run pass for one that was
// never made.
func newJob(p *v1alpha1.RebootProcedure, node *protocol.Node, r protocol.RebooterStatus, keep time.Duration) *batchv1.Job {
	template := p.Spec.JobTemplate.DeepCopy()
	labels := map[string]string{
		managedByKey:       managedBy,
		protocol.WindowKey: r.Grant.Window,
		protocol.GrantKey:  r.Grant.String(),
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: jobName(node.Name, r.Grant), Namespace: p.Namespace,
		Labels:      merged(template.Labels, labels),
		Annotations: merged(template.Annotations, map[string]string{protocol.NodeKey: node.Name, protocol.NodeUIDKey: node.UID}),
	}, Spec: template.Spec}
	spec := &job.Spec
	spec.Parallelism, spec.Completions, spec.BackoffLimit = new(int32(1)), new(int32(1)), new(int32(0))
	if least := int32(keep / time.Second); spec.TTLSecondsAfterFinished == nil || *spec.TTLSecondsAfterFinished < least {
		spec.TTLSecondsAfterFinished = &least
	}
	spec.Template.Labels = merged(spec.Template.Labels, labels)
	spec.Template.Annotations = merged(spec.Template.Annotations, map[string]string{protocol.NodeKey: node.Name})
	pod := &spec.Template.Spec
	pod.RestartPolicy = corev1.RestartPolicyNever
	if pod.AutomountServiceAccountToken == nil {
		pod.AutomountServiceAccountToken = new(false)
	}
	if p.Spec.Placement == v1alpha1.PlacementNode {
		place(pod, node.Name)
	}
	env := []corev1.EnvVar{
		{Name: "GANGLION_NODE", Value: node.Name},
		{Name: "GANGLION_BOOT_ID", Value: r.BootID},
		{Name: "GANGLION_GRANT", Value: r.Grant.String()},
	}
	for i := range pod.InitContainers {
		pod.InitContainers[i].Env = withEnv(pod.InitContainers[i].Env, env)
	}
	for i := range pod.Containers {
		pod.Containers[i].Env = withEnv(pod.Containers[i].Env, env)
	}
	return job
}

// place binds the pod to the node, whatever its taints: the node is cordoned, and
// may be in any other state too.
func place(pod *corev1.PodSpec, node string) {
	pod.NodeName = node
	pod.NodeSelector, pod.Affinity, pod.TopologySpreadConstraints = nil, nil, nil
	pod.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

func merged(a, b map[string]string) map[string]string {
	m := maps.Clone(a)
	if m == nil {
		m = map[string]string{}
	}
	maps.Copy(m, b)
	return m
}

// withEnv puts ours first, so that the template's own variables can refer to
// them, and drops what the template has under the same names.
func withEnv(theirs, ours []corev1.EnvVar) []corev1.EnvVar {
	env := append([]corev1.EnvVar(nil), ours...)
	for _, v := range theirs {
		if !strings.HasPrefix(v.Name, "GANGLION_") || v.Name != ours[0].Name && v.Name != ours[1].Name && v.Name != ours[2].Name {
			env = append(env, v)
		}
	}
	return env
}

// ours tells why a Job of the right name was not made for this grant of this node.
func ours(job *batchv1.Job, node *protocol.Node, g protocol.Grant) error {
	switch {
	case job.Labels[managedByKey] != managedBy:
		return fmt.Errorf("job %s: label %s is %q", job.Name, managedByKey, job.Labels[managedByKey])
	case job.Labels[protocol.GrantKey] != g.String():
		return fmt.Errorf("job %s: label %s is %q", job.Name, protocol.GrantKey, job.Labels[protocol.GrantKey])
	case job.Annotations[protocol.NodeKey] != node.Name:
		return fmt.Errorf("job %s: annotation %s is %q", job.Name, protocol.NodeKey, job.Annotations[protocol.NodeKey])
	case job.Annotations[protocol.NodeUIDKey] != node.UID:
		return fmt.Errorf("job %s: annotation %s is %q", job.Name, protocol.NodeUIDKey, job.Annotations[protocol.NodeUIDKey])
	}
	return nil
}

// jobState is how a Job stands: what may still act is active, and only what has
// ended with all of its pods is not.
func jobState(job *batchv1.Job, pods []*corev1.Pod) rules.JobState {
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			return rules.JobActive
		}
	}
	if job == nil {
		return rules.JobAbsent
	}
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return rules.JobSucceeded
		case c.Type == batchv1.JobFailed:
			return rules.JobFailed
		}
	}
	return rules.JobActive
}

// lastWords is what a pod of the Job said when it ended, or why it does not run.
func lastWords(pods []*corev1.Pod) string {
	for _, pod := range pods {
		for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
				return strings.TrimSpace(fmt.Sprintf("pod %s: %s ended with exit code %d: %s", pod.Name, c.Name, t.ExitCode, t.Message))
			}
			if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
				return strings.TrimSpace(fmt.Sprintf("pod %s: %s waits: %s: %s", pod.Name, c.Name, w.Reason, w.Message))
			}
		}
		if pod.Status.Message != "" {
			return fmt.Sprintf("pod %s: %s", pod.Name, pod.Status.Message)
		}
	}
	return ""
}
