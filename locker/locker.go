package main

import (
	"context"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/daemon"
	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

// slotLease is a Lease as the API server has it and as the rules see it.
type slotLease struct {
	*rules.Lease
	object *coordinationv1.Lease
}

type locker struct {
	log      *zap.Logger
	health   *daemon.Health
	client   kubernetes.Interface
	recorder record.EventRecorder
	nodes    *kube.Tracker[*protocol.Node]
	leases   *kube.Tracker[slotLease]
	windows  *kube.Tracker[*v1alpha1.NodesMaintenanceWindow]
	backoff  rules.Backoff
	period   time.Duration
	metrics  *metrics
	explain  *explainer
	now      func() time.Time

	changed chan struct{} // has room for one: there is work
	aside   map[string]*aside
}

// aside is a node whose last mutation failed: it is left out for a while, so that
// the others go on.
type aside struct {
	until   time.Time
	backoff wait.Backoff
}

// wake says that there is work.
func (l *locker) wake() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// beatEvery is how often the idle loop says that it is alive.
const beatEvery = 20 * time.Second

// lead decides and acts until the context is done: a mutation a pass, and a pass
// after each event until there is nothing left to do.
func (l *locker) lead(ctx context.Context) {
	l.aside = map[string]*aside{}
	l.explain.reset()
	resync, beat := time.NewTicker(l.period), time.NewTicker(beatEvery)
	defer resync.Stop()
	defer beat.Stop()
	recheck := time.NewTimer(0)
	defer recheck.Stop()
	for {
		l.health.Beat("leader", 3*beatEvery)
		select {
		case <-ctx.Done():
			l.health.Forget("leader")
			return
		case <-beat.C:
			continue
		case <-l.changed:
		case <-resync.C:
		case <-recheck.C:
		}
		again := l.pass(ctx)
		for again == 0 && ctx.Err() == nil {
			l.health.Beat("leader", 3*beatEvery)
			again = l.pass(ctx)
		}
		recheck.Reset(again)
	}
}

// never is when to look again where only an event can change something.
const never = 24 * time.Hour

// pass makes one decision and one mutation. It returns when to decide again: 0
// is at once.
func (l *locker) pass(ctx context.Context) time.Duration {
	started := l.now()
	view := l.observe(started)
	action, report := view.Decide()
	if action != nil {
		err := l.act(ctx, action)
		if err == nil {
			delete(l.aside, action.About())
			return 0
		}
		l.putAside(action, err)
		return min(l.retry(), 50*time.Millisecond)
	}
	again := never
	if report.Recheck > 0 {
		again = min(again, report.Recheck)
	}
	if len(l.aside) > 0 {
		again = min(again, l.retry())
	}
	if soon := l.explain.tell(ctx, view, report); soon > 0 {
		again = min(again, soon)
	}
	return again
}

// observe takes the snapshot that is decided from.
func (l *locker) observe(now time.Time) *rules.LockerView {
	view := &rules.LockerView{
		Nodes: l.nodes.Snapshot(), Leases: map[string]*rules.Lease{}, Aside: map[string]bool{},
		Backoff: l.backoff, Now: now,
	}
	for name, lease := range l.leases.Snapshot() {
		if name == rules.ControlPlaneLease {
			view.ControlPlane = lease.Lease
			continue
		}
		view.Leases[name] = lease.Lease
	}
	for _, w := range l.windows.Snapshot() {
		if w.DeletionTimestamp == nil {
			view.Windows = append(view.Windows, windowOf(w))
		}
	}
	for node, a := range l.aside {
		if now.Before(a.until) {
			view.Aside[node] = true
		}
	}
	return view
}

// putAside leaves the node of a failed mutation out for a while.
func (l *locker) putAside(action *rules.LockerAction, err error) {
	name := action.About()
	a := l.aside[name]
	if a == nil {
		a = &aside{backoff: wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 12, Cap: 15 * time.Second}}
		l.aside[name] = a
	}
	a.until = l.now().Add(a.backoff.Step())
	level := l.log.Warn
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		level = l.log.Debug // somebody was faster; what it wrote is on its way here
	}
	level("will try again", zap.String("action", string(action.Kind)), zap.String("node", name),
		zap.Stringer("grant", action.Grant), zap.Error(err))
}

// retry is how long until the first node is taken back in. Entries whose time has
// come long ago without a new failure are forgotten.
func (l *locker) retry() time.Duration {
	now, first := l.now(), never
	for name, a := range l.aside {
		left := a.until.Sub(now)
		if left < -time.Minute {
			delete(l.aside, name)
			continue
		}
		if left > 0 {
			first = min(first, left)
		}
	}
	return max(first, time.Millisecond)
}
