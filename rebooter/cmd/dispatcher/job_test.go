package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

var (
	grant = protocol.Grant{Slot: protocol.Slot{Window: "nightly", Index: 3}, Turn: 17}
	node  = &protocol.Node{Name: "worker-1.example", UID: "u1"}
)

func procedure(change func(*v1alpha1.RebootProcedure)) *v1alpha1.RebootProcedure {
	p := &v1alpha1.RebootProcedure{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "ganglion-nodes"}}
	p.Spec.Placement = v1alpha1.PlacementNode
	p.Spec.JobTemplate.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if change != nil {
		change(p)
	}
	return p
}

func made(p *v1alpha1.RebootProcedure) *batchv1.Job {
	return newJob(p, node, protocol.RebooterStatus{Grant: grant, BootID: "b1"}, 2*time.Hour)
}

func TestTheNameOfAJobFollowsFromNodeAndGrantAndIsALabel(t *testing.T) {
	names := map[string]bool{}
	other := grant
	other.Turn++
	for _, n := range []string{"a", "a.b", "a-b", strings.Repeat("x", 253)} {
		for _, g := range []protocol.Grant{grant, other} {
			name := jobName(n, g)
			if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
				t.Errorf("node %s: %s: %v", n, name, problems)
			}
			if names[name] {
				t.Errorf("%s names two Jobs", name)
			}
			names[name] = true
		}
	}
}

func TestAJobIsOursForItsVeryGrantAndNodeAlone(t *testing.T) {
	for name, change := range map[string]func(*batchv1.Job){
		"as made":          nil,
		"not managed":      func(j *batchv1.Job) { delete(j.Labels, managedByKey) },
		"another grant":    func(j *batchv1.Job) { j.Labels[protocol.GrantKey] = "nightly.3.18" },
		"another node":     func(j *batchv1.Job) { j.Annotations[protocol.NodeKey] = "worker-2" },
		"another node UID": func(j *batchv1.Job) { j.Annotations[protocol.NodeUIDKey] = "u2" },
	} {
		job := made(procedure(nil))
		if change != nil {
			change(job)
		}
		if err := ours(job, node, grant); (err == nil) != (change == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatTheDispatcherAddsToATemplate(t *testing.T) {
	job := made(procedure(func(p *v1alpha1.RebootProcedure) {
		s := &p.Spec.JobTemplate.Spec
		s.BackoffLimit, s.Parallelism, s.Completions, s.TTLSecondsAfterFinished = new(int32(6)), new(int32(2)), new(int32(2)), new(int32(1))
		s.Template.Labels = map[string]string{"mine": "x", protocol.GrantKey: "forged"}
		s.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		s.Template.Spec.NodeSelector = map[string]string{"elsewhere": ""}
		s.Template.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i"}}
		s.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "GANGLION_NODE", Value: "forged"}, {Name: "MINE", Value: "$(GANGLION_NODE)"}}
	}))
	spec, pod := job.Spec, job.Spec.Template.Spec
	if *spec.BackoffLimit != 0 || *spec.Parallelism != 1 || *spec.Completions != 1 || pod.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("it may run more than once: %+v", spec)
	}
	if *spec.TTLSecondsAfterFinished != 7200 {
		t.Errorf("its record goes after %d s", *spec.TTLSecondsAfterFinished)
	}
	if pod.NodeName != node.Name || pod.NodeSelector != nil || !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.Operator == corev1.TolerationOpExists && t.Key == "" }) {
		t.Errorf("it is not bound to the node whatever its taints: %+v", pod)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("it has a token")
	}
	if l := spec.Template.Labels; l["mine"] != "x" || l[protocol.GrantKey] != grant.String() || l[protocol.WindowKey] != "nightly" {
		t.Errorf("its pod's labels are %v", l)
	}
	want := []corev1.EnvVar{{Name: "GANGLION_NODE", Value: node.Name}, {Name: "GANGLION_BOOT_ID", Value: "b1"}, {Name: "GANGLION_GRANT", Value: grant.String()}}
	if got := pod.InitContainers[0].Env; !slices.Equal(got, want) {
		t.Errorf("environment of an init container: %v", got)
	}
	if got := pod.Containers[0].Env; !slices.Equal(got, append(want, corev1.EnvVar{Name: "MINE", Value: "$(GANGLION_NODE)"})) {
		t.Errorf("environment of a container: %v", got)
	}
}

func TestWhatTheDispatcherLeavesToATemplate(t *testing.T) {
	job := made(procedure(func(p *v1alpha1.RebootProcedure) {
		p.Spec.Placement = v1alpha1.PlacementAnywhere
		s := &p.Spec.JobTemplate.Spec
		s.TTLSecondsAfterFinished = new(int32(86400))
		s.Template.Spec.AutomountServiceAccountToken = new(true)
		s.Template.Spec.NodeSelector = map[string]string{"elsewhere": ""}
	}))
	pod := job.Spec.Template.Spec
	if *job.Spec.TTLSecondsAfterFinished != 86400 || !*pod.AutomountServiceAccountToken || pod.NodeName != "" || pod.NodeSelector == nil {
		t.Errorf("%+v", job.Spec)
	}
}

func TestHowAJobStands(t *testing.T) {
	job := func(c batchv1.JobConditionType) *batchv1.Job {
		return &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: c, Status: corev1.ConditionTrue}}}}
	}
	pod := func(phase corev1.PodPhase) []*corev1.Pod {
		return []*corev1.Pod{{Status: corev1.PodStatus{Phase: phase}}}
	}
	for name, c := range map[string]struct {
		job  *batchv1.Job
		pods []*corev1.Pod
		want rules.JobState
	}{
		"no Job":                            {nil, nil, rules.JobAbsent},
		"no Job, and its pod may still act": {nil, pod(corev1.PodRunning), rules.JobActive},
		"no Job, and its pod has ended":     {nil, pod(corev1.PodFailed), rules.JobAbsent},
		"just made":                         {&batchv1.Job{}, nil, rules.JobActive},
		"its pod runs":                      {&batchv1.Job{}, pod(corev1.PodRunning), rules.JobActive},
		"its node is away":                  {&batchv1.Job{}, pod(corev1.PodUnknown), rules.JobActive},
		"its pod has ended and the Job does not say": {&batchv1.Job{}, pod(corev1.PodSucceeded), rules.JobActive},
		"complete":                        {job(batchv1.JobComplete), pod(corev1.PodSucceeded), rules.JobSucceeded},
		"failed":                          {job(batchv1.JobFailed), pod(corev1.PodFailed), rules.JobFailed},
		"failed, and a pod may still act": {job(batchv1.JobFailed), pod(corev1.PodPending), rules.JobActive},
	} {
		if got := jobState(c.job, c.pods); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestTheLastWordsOfAJobSayWhyItDoesNotRun(t *testing.T) {
	status := func(s corev1.ContainerState) []*corev1.Pod {
		return []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: s}}}}}
	}
	for want, pods := range map[string][]*corev1.Pod{
		"": status(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}),
		"pod p: c ended with exit code 1: still up":      status(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "still up\n"}}),
		"pod p: c waits: ErrImagePull: no such image":    status(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}),
		"pod p: Pod was rejected: Node is shutting down": {{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{Message: "Pod was rejected: Node is shutting down"}}},
	} {
		if got := lastWords(pods); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
