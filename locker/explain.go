package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/api/v1alpha1/client"
	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/rules"
)

// statusEvery bounds how often a window's status is written while only counts and
// phases change.
const statusEvery = 2 * time.Second

// maxWaiting is how many waiting nodes a window's status names.
const maxWaiting = 10

// explainer tells what was decided. What it told last, it remembers only in order
// not to say it again.
type explainer struct {
	log      *zap.Logger
	recorder record.EventRecorder
	windows  *kube.Tracker[*v1alpha1.NodesMaintenanceWindow]
	api      *client.Windows
	metrics  *metrics
	now      func() time.Time

	waiting  map[string]rules.Reason // by node
	problems map[string]string
	stalled  map[string]bool
	written  map[string]time.Time // by window
}

func (e *explainer) reset() {
	e.waiting, e.problems = map[string]rules.Reason{}, map[string]string{}
	e.stalled, e.written = map[string]bool{}, map[string]time.Time{}
}

// tell brings Events, metrics and the windows' status into line with the report.
// It returns when it has more to write, 0 where it has not.
func (e *explainer) tell(ctx context.Context, view *rules.LockerView, report *rules.Report) time.Duration {
	e.tellProblems(view, report)
	e.tellWaiting(view, report)
	e.tellStalled(view, report)
	e.metrics.show(view, report)
	var again time.Duration
	for _, w := range view.Windows {
		if wait := e.writeStatus(ctx, w, report); wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
	}
	return again
}

// tellProblems names what cannot be read, once until that changes.
func (e *explainer) tellProblems(view *rules.LockerView, report *rules.Report) {
	for _, what := range slices.Sorted(maps.Keys(report.Problems)) {
		text := strings.ReplaceAll(report.Problems[what].Error(), "\n", "; ")
		if e.problems[what] == text {
			continue
		}
		e.problems[what] = text
		e.log.Warn("cannot be read, so nothing is done about it", zap.String("object", what), zap.String("problem", text))
		kind, name, _ := strings.Cut(what, "/")
		if node := view.Nodes[name]; kind == "node" && node != nil {
			e.recorder.Event(kube.Reference(node), corev1.EventTypeWarning, kube.EventRebootWaiting, "Unreadable: "+text)
		} else if w, is := e.windows.Get(strings.Split(name, ".")[0]); is {
			e.recorder.Event(windowReference(w), corev1.EventTypeWarning, kube.EventRebootWaiting, "Unreadable: "+text)
		}
	}
	maps.DeleteFunc(e.problems, func(what, _ string) bool { return report.Problems[what] == nil })
}

// tellWaiting says why a node waits, once until the reason changes.
func (e *explainer) tellWaiting(view *rules.LockerView, report *rules.Report) {
	for _, name := range slices.Sorted(maps.Keys(report.Waiting)) {
		why := report.Waiting[name]
		if e.waiting[name].Reason == why.Reason || why.Reason == rules.ReasonRetry {
			continue
		}
		e.waiting[name] = why
		reason, kind := kube.EventRebootWaiting, corev1.EventTypeNormal
		if why.Reason == rules.ReasonRebootLoop {
			reason, kind = kube.EventRebootLoop, corev1.EventTypeWarning
		}
		e.recorder.Event(kube.Reference(view.Nodes[name]), kind, reason, why.Reason+": "+why.Message)
	}
	maps.DeleteFunc(e.waiting, func(name string, _ rules.Reason) bool {
		_, is := report.Waiting[name]
		return !is
	})
}

// tellStalled names the nodes that have not come back.
func (e *explainer) tellStalled(view *rules.LockerView, report *rules.Report) {
	stalled := map[string]bool{}
	for window, wr := range report.Windows {
		for _, name := range wr.Stalled {
			stalled[name] = true
			if node := view.Nodes[name]; !e.stalled[name] && node != nil {
				e.recorder.Event(kube.Reference(node), corev1.EventTypeWarning, kube.EventRebootStalled,
					fmt.Sprintf("Not back in time; it keeps its slot of window %s", window))
			}
		}
	}
	e.stalled = stalled
}

// writeStatus writes a window's status where it has changed. Where only counts and
// phases have, that may wait.
func (e *explainer) writeStatus(ctx context.Context, rule *rules.Window, report *rules.Report) time.Duration {
	w, is := e.windows.Get(rule.Name)
	if !is {
		return 0
	}
	want := statusOf(w, rule, report.Windows[rule.Name], e.now())
	if equality.Semantic.DeepEqual(want, w.Status) {
		return 0
	}
	if equality.Semantic.DeepEqual(want.Conditions, w.Status.Conditions) {
		if wait := e.written[w.Name].Add(statusEvery).Sub(e.now()); wait > 0 {
			return wait
		}
	}
	e.written[w.Name] = e.now()
	changed := w.DeepCopy()
	changed.Status = want
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	updated, err := e.api.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			e.log.Warn("writing the status of a window", zap.String("window", w.Name), zap.Error(err))
		}
		return statusEvery
	}
	e.windows.Wrote(updated, false)
	return 0
}

// statusOf is the status of a window as it stands.
func statusOf(w *v1alpha1.NodesMaintenanceWindow, rule *rules.Window, r *rules.WindowReport, now time.Time) v1alpha1.NodesMaintenanceWindowStatus {
	status := v1alpha1.NodesMaintenanceWindowStatus{
		ObservedGeneration: w.Generation,
		MaxConcurrent:      int32(r.Cap),
		Nodes: v1alpha1.NodeCounts{
			Selected: int32(r.Selected), NeedReboot: int32(r.Needy), InFlight: int32(len(r.InFlight)), Failed: int32(r.Failed),
		},
	}
	for _, c := range w.Status.Conditions {
		status.Conditions = append(status.Conditions, *c.DeepCopy())
	}
	set := func(kind string, is bool, reason, message string) {
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: w.Generation, LastTransitionTime: metav1.NewTime(now),
		}
		if is {
			c.Status = metav1.ConditionTrue
		}
		apimeta.SetStatusCondition(&status.Conditions, c)
	}
	switch unusable, _ := v1alpha1.Usable(w).(*v1alpha1.Unusable); {
	case unusable != nil:
		set(v1alpha1.ConditionValid, false, unusable.Reason, unusable.Message)
		set(v1alpha1.ConditionOpen, false, unusable.Reason, "A window that cannot be obeyed grants nothing")
		status.Reason = unusable.Reason
	case rule.Invalid != "":
		set(v1alpha1.ConditionValid, false, "Invalid", rule.Invalid)
		set(v1alpha1.ConditionOpen, false, "Invalid", "A window that cannot be obeyed grants nothing")
		status.Reason = "Invalid"
	case rule.Suspended:
		set(v1alpha1.ConditionValid, true, "Valid", "")
		set(v1alpha1.ConditionOpen, false, "Suspended", "spec.suspended is true")
		status.Reason = "Suspended"
	default:
		set(v1alpha1.ConditionValid, true, "Valid", "")
		set(v1alpha1.ConditionOpen, true, "AlwaysOpen", "It has no schedules")
		status.UntilOrNext = "always"
		status.Reason = summary(r)
	}
	set(v1alpha1.ConditionBlocked, false, "NoBlockers", "It has no blockers")
	if len(r.Stalled) > 0 {
		set(v1alpha1.ConditionStalled, true, "NotBack", "Not back in time: "+strings.Join(r.Stalled, ", "))
		status.Reason = "Stalled"
	} else {
		set(v1alpha1.ConditionStalled, false, "AllBack", "")
	}
	for _, f := range r.InFlight {
		since := metav1.NewTime(f.Since.Truncate(time.Second))
		status.InFlight = append(status.InFlight, v1alpha1.InFlightNode{
			Node: f.Node, Grant: f.Grant.String(), Phase: string(f.Phase), Since: since,
		})
	}
	for _, n := range r.Waiting[:min(len(r.Waiting), maxWaiting)] {
		status.Waiting = append(status.Waiting, v1alpha1.WaitingNode{Node: n.Node, Reason: n.Reason.Reason + ": " + n.Message})
	}
	return status
}

// summary is in a word what goes on in a window that is open.
func summary(r *rules.WindowReport) string {
	switch {
	case len(r.InFlight) > 0:
		return "InProgress"
	case len(r.Waiting) > 0:
		return r.Waiting[0].Reason.Reason
	}
	return "UpToDate"
}

func windowReference(w *v1alpha1.NodesMaintenanceWindow) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "NodesMaintenanceWindow", Name: w.Name, UID: w.UID,
	}
}
