package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"ganglion.dev/shared/connect"
)

// verdict is what an answer of the eviction API means.
type verdict string

const (
	// evicted: the pod is on its way out.
	evicted verdict = "evicted"
	// gone: the pod that was meant is not there any more.
	gone verdict = "gone"
	// refused: a disruption budget, or two of them, say not now.
	refused verdict = "refused"
	// failed: no answer, or one that says nothing about the pod.
	failed verdict = "error"
)

// evict asks for the eviction of this very pod, and of no other that has taken
// its name since. The text says what stands in the way, where something does.
// grace is in seconds; below 0 it is the pod's own.
func evict(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, grace int64, dryRun bool) (verdict, string) {
	options := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if grace >= 0 {
		options.GracePeriodSeconds = &grace
	}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	return answer(client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: options,
	}))
}

// answer reads what the eviction API says. See
// https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/#how-api-initiated-eviction-works
func answer(err error) (verdict, string) {
	switch {
	case err == nil:
		return evicted, ""
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// A conflict is the UID's precondition: a successor has the name.
		return gone, ""
	case apierrors.IsTooManyRequests(err):
		// A 429 without the cause is the API server asking for patience, not a budget.
		if text := budget(err); text != "" {
			return refused, text
		}
		return refused, err.Error()
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "more than one PodDisruptionBudget"):
		// Two budgets on one pod are a misconfiguration that the API server
		// answers with 500: it stays until somebody mends it.
		return refused, err.Error()
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The namespace goes and takes the pod with it.
		return evicted, ""
	}
	return failed, err.Error()
}

// budget is the API server's sentence on the disruption budget that refuses.
func budget(err error) string {
	status, is := err.(apierrors.APIStatus)
	if !is || status.Status().Code != http.StatusTooManyRequests || status.Status().Details == nil {
		return ""
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == policyv1.DisruptionBudgetCause {
			return cause.Message
		}
	}
	return ""
}

// attempt is what is known of the eviction of one pod.
type attempt struct {
	// next is when to ask again; zero after an eviction that was accepted.
	next    time.Time
	backoff wait.Backoff
	// text says what stood in the way at the last try.
	text string
}

// newBackoff gives 5 s, then longer waits up to 30 s, jittered: a handful of
// requests a minute for a pod whose eviction is refused.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 5 * time.Second, Factor: 1.5, Jitter: 0.2, Steps: 10, Cap: 30 * time.Second}
}

// podName is a pod as one would ask kubectl for it.
func podName(pod *corev1.Pod) string { return fmt.Sprintf("%s/%s", pod.Namespace, pod.Name) }
