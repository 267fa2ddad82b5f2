package main

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestEveryAnswerOfTheEvictionAPIIsUnderstood(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	budgeted := apierrors.NewTooManyRequests("no", 0)
	budgeted.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget app needs 2"}}
	terminating := apierrors.NewForbidden(pods, "p", errors.New("terminating"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		err  error
		want verdict
		text string
	}{
		"accepted":                              {nil, evicted, ""},
		"gone":                                  {apierrors.NewNotFound(pods, "p"), gone, ""},
		"a successor has its name":              {apierrors.NewConflict(pods, "p", errors.New("uid")), gone, ""},
		"a budget refuses":                      {budgeted, refused, "The disruption budget app needs 2"},
		"the API server asks for patience":      {apierrors.NewTooManyRequests("slow down", 1), refused, "slow down"},
		"two budgets":                           {apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget")), refused, "more than one"},
		"another internal error":                {apierrors.NewInternalError(errors.New("etcd")), failed, "etcd"},
		"its namespace goes":                    {terminating, evicted, ""},
		"forbidden":                             {apierrors.NewForbidden(pods, "p", errors.New("no right")), failed, "no right"},
		"a webhook's refusal that says nothing": {apierrors.NewGenericServerResponse(http.StatusBadGateway, "create", pods, "p", "bad", 0, true), failed, "bad"},
		"no answer":                             {errors.New("connection refused"), failed, "refused"},
	} {
		got, text := answer(c.err)
		if got != c.want || !strings.Contains(text, c.text) || (c.text == "") != (text == "") {
			t.Errorf("%s: %s, %q; want %s, %q", name, got, text, c.want, c.text)
		}
	}
}

func TestC18ARefusedEvictionIsAskedForAHandfulOfTimesAMinute(t *testing.T) {
	backoff, elapsed, n := newBackoff(), time.Duration(0), 0
	for elapsed < time.Minute {
		elapsed += backoff.Step()
		n++
	}
	if n < 3 || n > 10 {
		t.Errorf("%d times in the first minute", n)
	}
	for range 100 {
		if wait := backoff.Step(); wait < 20*time.Second || wait > 40*time.Second {
			t.Fatalf("later it waits %s", wait)
		}
	}
}

func TestTheNameOfAClaimIsALeasesNameWhateverTheNode(t *testing.T) {
	if got := claimName("worker-1.example"); got != "drain.worker-1.example" {
		t.Error(got)
	}
	long := strings.Repeat("x", 253)
	if a, b := claimName(long), claimName(long[1:]+"y"); len(a) > 253 || a == b || !strings.HasPrefix(a, "drain.") {
		t.Errorf("%s and %s", a, b)
	}
}

func TestWhatHasEndedAndWhatIsOursStays(t *testing.T) {
	pod := func(namespace string, phase corev1.PodPhase, labels map[string]string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: labels}, Status: corev1.PodStatus{Phase: phase}}
	}
	ganglion := map[string]string{"app.kubernetes.io/name": "ganglion"}
	for name, c := range map[string]struct {
		pod   corev1.Pod
		stays bool
	}{
		"it runs":                        {pod("default", corev1.PodRunning, nil), false},
		"it is pending":                  {pod("default", corev1.PodPending, nil), false},
		"it has succeeded":               {pod("default", corev1.PodSucceeded, nil), true},
		"it has failed":                  {pod("default", corev1.PodFailed, nil), true},
		"it is ours":                     {pod("ganglion-system", corev1.PodRunning, ganglion), true},
		"it calls itself ours":           {pod("default", corev1.PodRunning, ganglion), false},
		"it is a guest in our namespace": {pod("ganglion-system", corev1.PodRunning, nil), false},
	} {
		stays := !skipFinished(c.pod).Delete || !skipOurs(c.pod).Delete
		if stays != c.stays {
			t.Errorf("%s: stays %t", name, stays)
		}
	}
}
