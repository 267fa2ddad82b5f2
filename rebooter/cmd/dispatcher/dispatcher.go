package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

// keepRecords is how long a Job's record outlives its end, beyond the time that
// the reboot is given.
const keepRecords = time.Hour

type dispatcher struct {
	log        *zap.Logger
	client     kubernetes.Interface
	recorder   record.EventRecorder
	nodes      *kube.Tracker[*protocol.Node]
	jobs       *kube.Tracker[*batchv1.Job]
	pods       *kube.Tracker[*corev1.Pod]
	windows    *kube.Tracker[*v1alpha1.NodesMaintenanceWindow]
	procedures *kube.Tracker[*v1alpha1.RebootProcedure]
	queue      workqueue.TypedRateLimitingInterface[string]
	metrics    *metrics
	now        func() time.Time

	mu       sync.Mutex
	problems map[string]string // what was last told, by node
}

// reconcile does what the node asks for now. It returns when to look again, 0
// where only an event can change something.
func (d *dispatcher) reconcile(ctx context.Context, name string) (time.Duration, error) {
	node, is := d.nodes.Get(name)
	if !is {
		return 0, nil
	}
	view, procedure := d.observe(node)
	step := view.Decide()
	d.tellProblem(node, step.Problem)
	if step.Backed {
		if err := kube.CheckBacked(ctx, d.client.CoordinationV1().Leases(protocol.SystemNamespace), step.Grant, node); err != nil {
			if kube.IsUnbacked(err) {
				d.log.Warn("not acting", zap.Error(err))
				return step.Recheck, nil // the locker undoes it, and an event comes with that
			}
			return 0, err
		}
	}
	if step.Ended {
		if err := d.checkEnded(ctx, node, step.Grant); err != nil {
			return 0, err
		}
	}
	switch step.Kind {
	case rules.Intend:
		if err := d.write(ctx, node, step.Status); err != nil {
			return 0, err
		}
		d.event(node, corev1.EventTypeNormal, kube.EventRebooting, fmt.Sprintf(
			"RebootProcedure %s begins under grant %s; the boot id is %s", procedure.Name, step.Grant, step.Status.BootID))
		return view.Timeout, d.makeJob(ctx, node, step.Status, procedure, view.Timeout)
	case rules.MakeJob:
		return step.Recheck, d.makeJob(ctx, node, node.State.Rebooter, procedure, view.Timeout)
	case rules.Prove:
		began := node.State.Rebooter.At
		if err := d.write(ctx, node, step.Status); err != nil {
			return 0, err
		}
		d.metrics.rebootSeconds.Observe(d.now().Sub(began).Seconds())
		d.metrics.jobs.WithLabelValues("succeeded").Inc()
		d.event(node, corev1.EventTypeNormal, kube.EventRebooted, "Ready with boot id "+node.BootID)
	case rules.StopJob:
		return time.Second, d.stopJob(ctx, jobName(node.Name, step.Grant))
	case rules.Fail:
		if err := d.write(ctx, node, step.Status); err != nil {
			return 0, err
		}
		d.metrics.jobs.WithLabelValues("failed").Inc()
		d.event(node, corev1.EventTypeWarning, kube.EventRebootFailed, step.Status.Reason)
	}
	return step.Recheck, nil
}

// tellProblem says what leads to no action, once until that changes. What cannot be
// read of the node itself is the locker's to tell.
func (d *dispatcher) tellProblem(node *protocol.Node, text string) {
	d.mu.Lock()
	told := d.problems[node.Name]
	d.problems[node.Name] = text
	if text == "" {
		delete(d.problems, node.Name)
	}
	d.mu.Unlock()
	if text == "" || text == told {
		return
	}
	d.log.Warn("not acting", zap.String("node", node.Name), zap.String("problem", text))
	if node.Err == nil {
		d.event(node, corev1.EventTypeWarning, kube.EventRebootStalled, "Nothing is done: "+text)
	}
}

// observe gathers what the decision needs. Of a window or a procedure that is not
// there any more, what is in progress goes on under the defaults.
func (d *dispatcher) observe(node *protocol.Node) (*rules.DispatcherView, *v1alpha1.RebootProcedure) {
	view := &rules.DispatcherView{Node: node, Job: rules.JobAbsent, Now: d.now(), Timeout: v1alpha1.DefaultRebootTimeout}
	g := node.State.Current()
	if node.State.Rebooter.Step == protocol.Rebooting {
		g = node.State.Rebooter.Grant
	}
	if node.Err != nil || g.IsZero() {
		return view, nil
	}
	var procedure *v1alpha1.RebootProcedure
	window, is := d.windows.Get(g.Window)
	if !is {
		view.Unusable = fmt.Sprintf("window %s does not exist", g.Window)
	} else if err := v1alpha1.Usable(window); err != nil {
		view.Unusable = fmt.Sprintf("window %s: %v", g.Window, err)
	} else {
		view.Timeout = window.Spec.Reboot.Timeout.Duration
		name := window.Spec.Reboot.Procedure
		procedure, is = d.procedures.Get(name)
		if !is {
			view.Unusable = fmt.Sprintf("RebootProcedure %q does not exist in namespace %s", name, protocol.NodesNamespace)
		} else if errs := procedure.Validate(); len(errs) > 0 {
			view.Unusable = fmt.Sprintf("RebootProcedure %q: %v", name, errs.ToAggregate())
		} else {
			view.JobSucceeds = procedure.Spec.Completion == v1alpha1.CompletionJobSucceeded
		}
	}
	job, is := d.jobs.Get(jobName(node.Name, g))
	pods := d.podsOf(jobName(node.Name, g))
	if is {
		if err := ours(job, node, g); err != nil {
			view.Job, view.JobMessage = rules.JobForeign, err.Error()
			return view, procedure
		}
		view.JobDeleting = job.DeletionTimestamp != nil
	}
	view.Job, view.JobMessage = jobState(job, pods), lastWords(pods)
	return view, procedure
}

func (d *dispatcher) podsOf(job string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range d.pods.Snapshot() {
		if pod.Labels[batchv1.JobNameLabel] == job {
			pods = append(pods, pod)
		}
	}
	return pods
}

// makeJob creates the one Job of the grant. That it is there already is an
// answer like any other: what it is, is looked at when its event comes.
func (d *dispatcher) makeJob(ctx context.Context, node *protocol.Node, r protocol.RebooterStatus, p *v1alpha1.RebootProcedure, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	job := newJob(p, node, r, timeout+keepRecords)
	created, err := d.client.BatchV1().Jobs(protocol.NodesNamespace).Create(ctx, job, metav1.CreateOptions{})
	switch {
	case err == nil:
		d.jobs.Wrote(created, true)
		d.metrics.jobs.WithLabelValues("created").Inc()
		d.log.Info("made a Job", zap.String("node", node.Name), zap.String("job", job.Name), zap.Stringer("grant", r.Grant))
		return nil
	case apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return d.refused(ctx, node, r.Grant, job.Name, err)
	}
	return fmt.Errorf("making the Job of node %s: %w", node.Name, err)
}

// refused fails the cycle of a Job that the API server will not have: that does not
// get better by itself. An earlier try may have made it all the same, its answer
// lost; then it is there, and goes its way.
func (d *dispatcher) refused(ctx context.Context, node *protocol.Node, g protocol.Grant, job string, why error) error {
	_, err := d.client.BatchV1().Jobs(protocol.NodesNamespace).Get(ctx, job, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	current, is := d.nodes.Get(node.Name)
	if !is || current.Err != nil || current.State.RebooterOn(g).Step != protocol.Rebooting {
		return nil // it has gone on meanwhile
	}
	node = current
	status := protocol.RebooterStatus{Step: protocol.Failed, Grant: g, Reason: "the Job is refused: " + why.Error()}
	if err := d.write(ctx, node, status); err != nil {
		return err
	}
	d.metrics.jobs.WithLabelValues("failed").Inc()
	d.event(node, corev1.EventTypeWarning, kube.EventRebootFailed, status.Reason)
	return nil
}

// checkEnded asks the API server, and no cache, whether the Job of the grant and all of
// its pods have ended, or never were.
func (d *dispatcher) checkEnded(ctx context.Context, node *protocol.Node, g protocol.Grant) error {
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	name := jobName(node.Name, g)
	job, err := d.client.BatchV1().Jobs(protocol.NodesNamespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		job = nil
	case err != nil:
		return fmt.Errorf("reading Job %s: %w", name, err)
	}
	list, err := d.client.CoreV1().Pods(protocol.NodesNamespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + name})
	if err != nil {
		return fmt.Errorf("listing the pods of Job %s: %w", name, err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	if jobState(job, pods) == rules.JobActive {
		return fmt.Errorf("job %s of node %s has not ended after all", name, node.Name)
	}
	return nil
}

// stopJob deletes a Job and its pods, in the foreground: it is there until they
// are known to have ended.
func (d *dispatcher) stopJob(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	err := d.client.BatchV1().Jobs(protocol.NodesNamespace).Delete(ctx, name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground),
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("stopping Job %s: %w", name, err)
	}
	return nil
}

func (d *dispatcher) write(ctx context.Context, node *protocol.Node, status protocol.RebooterStatus) error {
	patched, err := kube.PatchNode(ctx, d.client.CoreV1().Nodes(), node, kube.Set(protocol.RebooterKey, status))
	if err != nil {
		return err
	}
	d.nodes.Wrote(patched, false)
	d.log.Info("wrote", zap.String("node", node.Name), zap.Stringer("status", status))
	return nil
}

func (d *dispatcher) event(node *protocol.Node, kind, reason, message string) {
	d.recorder.Event(kube.Reference(node), kind, reason, message)
}
