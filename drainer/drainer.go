package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/api/v1alpha1/client"
	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

type drainer struct {
	log        *zap.Logger
	client     kubernetes.Interface
	procedures *client.Procedures
	recorder   record.EventRecorder
	nodes      *kube.Tracker[*protocol.Node]
	windows    *kube.Tracker[*v1alpha1.NodesMaintenanceWindow]
	queue      workqueue.TypedRateLimitingInterface[string]
	claims     *claims
	metrics    *metrics
	now        func() time.Time
	// running is done when the daemon stops; the watches of the drains end with it.
	running context.Context

	mu     sync.Mutex
	drains map[string]*drain
}

// reconcile does what the node asks for now. It returns when to look again, 0
// where only an event can change something.
func (d *drainer) reconcile(ctx context.Context, name string) (time.Duration, error) {
	node, is := d.nodes.Get(name)
	if !is {
		d.end(ctx, name)
		return 0, nil
	}
	step := rules.DrainerDecide(node)
	if dr := d.drain(name); dr != nil && (step.Kind == rules.Nothing || step.Kind == rules.Restore || dr.grant != step.Grant) {
		d.end(ctx, name)
	}
	switch step.Kind {
	case rules.Cordon:
		return d.cordon(ctx, node, step)
	case rules.Drain:
		return d.advance(ctx, node, step)
	case rules.Restore:
		return 0, d.restore(ctx, node, step)
	}
	return 0, nil
}

// policy is what the window says, or why nothing may begin under it.
func (d *drainer) policy(g protocol.Grant) (policy, error) {
	w, is := d.windows.Get(g.Window)
	if !is {
		return policy{}, fmt.Errorf("window %s does not exist", g.Window)
	}
	return policyOf(w)
}

func policyOf(w *v1alpha1.NodesMaintenanceWindow) (policy, error) {
	if err := v1alpha1.Usable(w); err != nil {
		return policy{}, fmt.Errorf("window %s: %w", w.Name, err)
	}
	spec := w.Spec.Drain
	p := policy{
		DrainPolicy:        rules.DrainPolicy{Skip: spec.Skip, Timeout: spec.Timeout.Duration},
		preflight:          *spec.Preflight,
		gracePeriodSeconds: *spec.GracePeriodSeconds,
		skipTerminating:    spec.SkipWaitForDeleteTimeout.Duration,
		deleteEmptyDirData: *spec.DeleteEmptyDirData,
		procedure:          w.Spec.Reboot.Procedure,
	}
	if spec.PodSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(spec.PodSelector)
		if err != nil {
			return policy{}, fmt.Errorf("window %s: spec.drain.podSelector: %w", w.Name, err)
		}
		p.podSelector = selector.String()
	}
	return p, nil
}

// preflightTimeout is how long it may be unknown whether a node could be drained.
const preflightTimeout = time.Minute

// cordon begins a cycle: what can be known to fail is found before the node is touched.
func (d *drainer) cordon(ctx context.Context, node *protocol.Node, step rules.DrainerStep) (time.Duration, error) {
	p, err := d.policy(step.Grant)
	if err != nil {
		d.log.Warn("not beginning", zap.String("node", node.Name), zap.Stringer("grant", step.Grant), zap.Error(err))
		return 0, nil // the locker will revoke; an event of the node comes with that
	}
	// The Lease is read after the node was observed and before the write that
	// carries that observation's resourceVersion.
	if err := d.backed(ctx, node, step); err != nil {
		return 0, ignoreUnbacked(err)
	}
	dr, err := d.begin(ctx, node, step.Grant)
	if err != nil {
		return retryClaim(err)
	}
	dr.backed = true
	if !node.State.Cordoned() {
		why, err := d.hopeless(ctx, dr, p)
		if err != nil && d.now().Sub(dr.began) >= min(p.Timeout, preflightTimeout) {
			why, err = err.Error(), nil // nobody knows, and others want the slot
		}
		if err != nil {
			return 0, err
		}
		if why != "" {
			return 0, d.fail(ctx, node, step, why, false)
		}
	}
	yes := true
	change := kube.Set(protocol.DrainerKey, protocol.DrainerStatus{Step: protocol.Cordoned, Grant: step.Grant, Foreign: step.Foreign})
	change.Unschedulable = &yes
	if err := d.write(ctx, node, change); err != nil {
		return 0, err
	}
	message := "Cordoned under grant " + step.Grant.String()
	if step.Foreign {
		message = "Was cordoned before grant " + step.Grant.String() + ", and will stay so"
	}
	d.event(node, corev1.EventTypeNormal, kube.EventCordoned, message)
	d.queue.Add(node.Name)
	return 0, nil
}

// hopeless tells why the cycle cannot succeed, before anything is cordoned.
func (d *drainer) hopeless(ctx context.Context, dr *drain, p policy) (string, error) {
	_, err := d.procedures.Get(ctx, p.procedure, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("RebootProcedure %q does not exist in namespace %s", p.procedure, protocol.NodesNamespace), nil
	case err != nil:
		return "", fmt.Errorf("reading RebootProcedure %q: %w", p.procedure, err)
	}
	if p.Skip || !p.preflight {
		return "", nil
	}
	pods, why, err := dr.left(ctx, d.client, p, false)
	if err != nil || why != "" {
		return why, err
	}
	for i := range pods {
		if pods[i].DeletionTimestamp != nil {
			continue
		}
		switch verdict, text := evict(ctx, d.client, &pods[i], p.gracePeriodSeconds, true); verdict {
		case refused:
			return fmt.Sprintf("preflight: pod %s: %s", podName(&pods[i]), text), nil
		case failed:
			return "", fmt.Errorf("trying the eviction of pod %s: %s", podName(&pods[i]), text)
		}
	}
	return "", nil
}

// advance goes on with a drain.
func (d *drainer) advance(ctx context.Context, node *protocol.Node, step rules.DrainerStep) (time.Duration, error) {
	p, err := d.policy(step.Grant)
	if err != nil {
		d.log.Warn("not going on", zap.String("node", node.Name), zap.Stringer("grant", step.Grant), zap.Error(err))
		d.end(ctx, node.Name)
		return 0, nil
	}
	dr, err := d.begin(ctx, node, step.Grant)
	if err != nil {
		return retryClaim(err)
	}
	if !dr.backed {
		if err := d.backed(ctx, node, step); err != nil {
			d.end(ctx, node.Name)
			return 0, ignoreUnbacked(err)
		}
		dr.backed = true
	}
	view := rules.DrainView{Policy: p.DrainPolicy, Elapsed: d.now().Sub(dr.began)}
	pods, again, err := d.look(ctx, dr, p, &view)
	switch {
	case err != nil && view.Elapsed >= p.Timeout:
		view.Refused = err.Error() // a drain always ends, also one of which nothing is known
	case err != nil:
		return 0, err
	}
	switch outcome, why := view.Decide(); outcome {
	case rules.DrainDone:
		status := protocol.DrainerStatus{Step: protocol.Drained, Grant: step.Grant, Foreign: step.Foreign}
		if err := d.write(ctx, node, kube.Set(protocol.DrainerKey, status)); err != nil {
			return 0, err
		}
		d.metrics.drainSeconds.Observe(view.Elapsed.Seconds())
		d.event(node, corev1.EventTypeNormal, kube.EventDrained, "Nothing evictable is left")
		d.end(ctx, node.Name)
		return 0, nil
	case rules.DrainFailed:
		return 0, d.fail(ctx, node, step, why, !step.Foreign)
	}
	d.tellBlocked(node, dr, pods)
	left := p.Timeout - view.Elapsed
	if again <= 0 || left < again {
		again = left
	}
	return max(again, time.Millisecond), nil
}

// look finds out what is left and goes on with its eviction. It returns when the next
// eviction is due.
func (d *drainer) look(ctx context.Context, dr *drain, p policy, view *rules.DrainView) (pods []corev1.Pod, again time.Duration, err error) {
	if p.Skip {
		return nil, 0, nil
	}
	if pods, view.Refused, err = dr.left(ctx, d.client, p, false); err != nil {
		return nil, 0, err
	}
	if len(pods) == 0 && view.Refused == "" {
		// The watch may be behind: nothing is left only where the API server says so.
		if pods, view.Refused, err = dr.left(ctx, d.client, p, true); err != nil {
			return nil, 0, err
		}
	}
	if view.Refused == "" && view.Elapsed < p.Timeout {
		again = d.evictAll(ctx, dr, p, pods)
	}
	view.Left = dr.describe(pods)
	return pods, again, nil
}

// evictAll asks for the evictions that are due, and returns when the next one is.
func (d *drainer) evictAll(ctx context.Context, dr *drain, p policy, pods []corev1.Pod) time.Duration {
	var again time.Duration
	there := make(map[types.UID]bool, len(pods))
	for i := range pods {
		pod := &pods[i]
		there[pod.UID] = true
		a := dr.attempts[pod.UID]
		if a == nil {
			a = &attempt{backoff: newBackoff()}
			dr.attempts[pod.UID] = a
		}
		if pod.DeletionTimestamp != nil {
			a.text = "terminating"
			if p.skipTerminating > 0 { // no event tells that its time is up
				again = soonest(again, pod.DeletionTimestamp.Add(p.skipTerminating+time.Second).Sub(d.now()))
			}
			continue
		}
		if wait := a.next.Sub(d.now()); wait <= 0 {
			var v verdict
			v, a.text = evict(ctx, d.client, pod, p.gracePeriodSeconds, false)
			d.metrics.evictions.WithLabelValues(string(v)).Inc()
			// An accepted eviction shows as a deletion timestamp; should that
			// never come, it is asked for again.
			a.next = d.now().Add(a.backoff.Step())
			if v == failed {
				d.log.Warn("evicting", zap.String("node", dr.node), zap.String("pod", podName(pod)), zap.String("error", a.text))
			}
		}
		again = soonest(again, a.next.Sub(d.now()))
	}
	for uid := range dr.attempts {
		if !there[uid] {
			delete(dr.attempts, uid)
		}
	}
	return again
}

// soonest is the shorter of two waits, of which 0 is none.
func soonest(a, b time.Duration) time.Duration {
	b = max(b, time.Millisecond)
	if a == 0 {
		return b
	}
	return min(a, b)
}

// describe names what is left, and what holds it up.
func (d *drain) describe(pods []corev1.Pod) []string {
	var names []string
	for i := range pods {
		name := podName(&pods[i])
		if a := d.attempts[pods[i].UID]; a != nil && a.text != "" {
			name += " (" + strings.TrimSuffix(a.text, ".") + ")"
		}
		names = append(names, name)
	}
	return names
}

// tellBlocked says what stands in the way, once until that changes.
func (d *drainer) tellBlocked(node *protocol.Node, dr *drain, pods []corev1.Pod) {
	var blocked []corev1.Pod
	for _, pod := range pods {
		if a := dr.attempts[pod.UID]; a != nil && a.text != "" && pod.DeletionTimestamp == nil {
			blocked = append(blocked, pod)
		}
	}
	d.metrics.blocked(node.Name, len(blocked))
	text := strings.Join(dr.describe(blocked), ", ")
	if text != "" && text != dr.blocked {
		d.event(node, corev1.EventTypeWarning, kube.EventDrainBlocked, text)
	}
	dr.blocked = text
}

// fail ends the cycle: our cordon, where there is one, is undone in the same write.
func (d *drainer) fail(ctx context.Context, node *protocol.Node, step rules.DrainerStep, why string, uncordon bool) error {
	change := kube.Set(protocol.DrainerKey, protocol.DrainerStatus{Step: protocol.Failed, Grant: step.Grant, Reason: why})
	if uncordon {
		no := false
		change.Unschedulable = &no
	}
	if err := d.write(ctx, node, change); err != nil {
		return err
	}
	d.event(node, corev1.EventTypeWarning, kube.EventDrainFailed, why)
	d.end(ctx, node.Name)
	return nil
}

// restore undoes our own cordon, and leaves one that was there before.
func (d *drainer) restore(ctx context.Context, node *protocol.Node, step rules.DrainerStep) error {
	change := kube.Set(protocol.DrainerKey, protocol.DrainerStatus{Step: protocol.Restored, Grant: step.Grant})
	message := "Stays as it was before grant " + step.Grant.String()
	if !step.Foreign {
		no := false
		change.Unschedulable = &no
		message = "Schedulable again after grant " + step.Grant.String()
	}
	if err := d.write(ctx, node, change); err != nil {
		return err
	}
	d.event(node, corev1.EventTypeNormal, kube.EventRestored, message)
	return nil
}

func (d *drainer) write(ctx context.Context, node *protocol.Node, change kube.NodeChange) error {
	patched, err := kube.PatchNode(ctx, d.client.CoreV1().Nodes(), node, change)
	if err != nil {
		return err
	}
	d.nodes.Wrote(patched, false)
	d.log.Info("wrote", zap.String("node", node.Name), zap.Stringp("status", change.Annotations[protocol.DrainerKey]),
		zap.Boolp("unschedulable", change.Unschedulable))
	return nil
}

func (d *drainer) backed(ctx context.Context, node *protocol.Node, step rules.DrainerStep) error {
	if !step.Backed {
		return nil
	}
	err := kube.CheckBacked(ctx, d.client.CoordinationV1().Leases(protocol.SystemNamespace), step.Grant, node)
	if kube.IsUnbacked(err) {
		d.log.Warn("not acting", zap.Error(err))
	}
	return err
}

func ignoreUnbacked(err error) error {
	if kube.IsUnbacked(err) {
		return nil // reported; the locker undoes it, and an event comes with that
	}
	return err
}

func retryClaim(err error) (time.Duration, error) {
	var claimed errClaimed
	if errors.As(err, &claimed) {
		return claimed.until + 50*time.Millisecond, nil
	}
	return 0, err
}

func (d *drainer) event(node *protocol.Node, kind, reason, message string) {
	d.recorder.Event(kube.Reference(node), kind, reason, message)
}
