package main

import (
	"context"
	"fmt"
	"strconv"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

// act makes one mutation. Whatever fails is decided anew.
func (l *locker) act(ctx context.Context, a *rules.LockerAction) error {
	switch a.Kind {
	case rules.Take:
		return l.take(ctx, a)
	case rules.Notify:
		if err := kube.CheckBacked(ctx, l.api(), a.Grant, a.Node); err != nil {
			return err
		}
		return l.notify(ctx, a)
	case rules.Revoke, rules.Release:
		return l.conclude(ctx, a)
	case rules.Settle:
		return l.updateLease(ctx, a.Lease.Name, func(lease *coordinationv1.Lease) {
			lease.Annotations[kube.RestoredKey] = l.now().UTC().Format("2006-01-02T15:04:05Z07:00")
		})
	case rules.Free:
		return l.free(ctx, a)
	case rules.FreeControlPlane:
		return l.updateLease(ctx, a.Lease.Name, empty)
	}
	return fmt.Errorf("unknown action %q", a.Kind)
}

// take takes the slot, and then tells the node. The node was observed before the
// slot was taken, so the notice, which carries that observation's
// resourceVersion, needs no second look at the Lease.
func (l *locker) take(ctx context.Context, a *rules.LockerAction) error {
	if a.Surplus {
		if err := l.checkCap(ctx, a); err != nil {
			return err
		}
	}
	fill := func(lease *coordinationv1.Lease) {
		l.occupy(lease, a.Node)
		lease.Labels[protocol.WindowKey] = a.Grant.Window
		lease.Spec.LeaseTransitions = new(int32(a.Grant.Turn))
		delete(lease.Annotations, kube.RestoredKey)
		delete(lease.Annotations, protocol.FailuresKey)
		if a.Failures > 0 {
			lease.Annotations[protocol.FailuresKey] = strconv.Itoa(a.Failures)
		}
	}
	if err := l.putLease(ctx, a.Grant.Slot.String(), a.Lease != nil, fill); err != nil {
		return err
	}
	return l.notify(ctx, a)
}

// checkCap counts the slots that are taken once more, with the API server: where
// the cap was lowered, a slot above it may be held that this replica has not seen yet.
func (l *locker) checkCap(ctx context.Context, a *rules.LockerAction) error {
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	list, err := l.api().List(ctx, metav1.ListOptions{LabelSelector: protocol.WindowKey + "=" + a.Grant.Window})
	if err != nil {
		return fmt.Errorf("counting the slots of window %s: %w", a.Grant.Window, err)
	}
	held := 0
	for i := range list.Items {
		if kube.Lease(&list.Items[i]).Held() {
			held++
		}
	}
	if held >= a.Cap {
		return fmt.Errorf("%d of %d slots of window %s are taken after all", held, a.Cap, a.Grant.Window)
	}
	return nil
}

// notify writes the grant to the node, after the Lease of the control plane where
// it needs that too.
func (l *locker) notify(ctx context.Context, a *rules.LockerAction) error {
	if a.Node.ControlPlane() {
		if err := l.takeControlPlane(ctx, a); err != nil {
			return err
		}
	}
	if err := l.patch(ctx, a, kube.Set(protocol.LockerKey, a.Status)); err != nil {
		return err
	}
	l.event(a, corev1.EventTypeNormal, kube.EventSlotGranted, "Grant "+a.Grant.String())
	return nil
}

// takeControlPlane takes the one Lease of the control plane for this grant.
func (l *locker) takeControlPlane(ctx context.Context, a *rules.LockerAction) error {
	held, is := l.leases.Get(rules.ControlPlaneLease)
	if is && held.Held() {
		if held.Err == nil && held.For == a.Grant {
			return nil
		}
		return fmt.Errorf("lease %s is held by %q", rules.ControlPlaneLease, held.Holder)
	}
	return l.putLease(ctx, rules.ControlPlaneLease, is, func(lease *coordinationv1.Lease) {
		l.occupy(lease, a.Node)
		lease.Labels[protocol.WindowKey] = ""
		lease.Annotations[protocol.GrantKey] = a.Grant.String()
	})
}

// conclude writes `revoked` or `released`.
func (l *locker) conclude(ctx context.Context, a *rules.LockerAction) error {
	if a.Unbacked {
		switch err := kube.CheckBacked(ctx, l.api(), a.Grant, a.Node); {
		case err == nil:
			return fmt.Errorf("grant %s is backed by its Lease after all", a.Grant)
		case !kube.IsUnbacked(err):
			return err
		}
	}
	change := kube.Set(protocol.LockerKey, a.Status)
	for _, key := range a.RemoveNeeds {
		change.Annotations[key] = nil
	}
	if err := l.patch(ctx, a, change); err != nil {
		return err
	}
	if a.Kind == rules.Revoke {
		l.event(a, corev1.EventTypeNormal, kube.EventSlotRevoked, fmt.Sprintf("Grant %s: %s", a.Grant, a.Status.Reason))
		return nil
	}
	kind := corev1.EventTypeNormal
	if a.Status.Failures > 0 {
		kind = corev1.EventTypeWarning
	}
	l.event(a, kind, kube.EventSlotReleased, fmt.Sprintf("Grant %s: %s", a.Grant, a.Status.Outcome))
	l.metrics.cycles.WithLabelValues(a.Grant.Window, a.Status.Outcome).Inc()
	if a.Lease != nil {
		l.metrics.cycleSeconds.Observe(l.now().Sub(a.Lease.Acquired).Seconds())
	}
	return nil
}

// free gives a slot on. That its holder's object is gone is believed of the API
// server only.
func (l *locker) free(ctx context.Context, a *rules.LockerAction) error {
	if a.Node == nil {
		ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
		defer cancel()
		node, err := l.client.CoreV1().Nodes().Get(ctx, a.Lease.Holder, metav1.GetOptions{})
		switch {
		case err == nil && string(node.UID) == a.Lease.NodeUID:
			return fmt.Errorf("node %s, which holds slot %s, is there after all", a.Lease.Holder, a.Lease.Name)
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("looking for node %s, which holds slot %s: %w", a.Lease.Holder, a.Lease.Name, err)
		}
	}
	return l.updateLease(ctx, a.Lease.Name, empty)
}

// patch writes to the node, as it was observed.
func (l *locker) patch(ctx context.Context, a *rules.LockerAction, change kube.NodeChange) error {
	patched, err := kube.PatchNode(ctx, l.client.CoreV1().Nodes(), a.Node, change)
	if err != nil {
		return err
	}
	l.nodes.Wrote(patched, false)
	l.log.Info("wrote", zap.String("node", a.Node.Name), zap.Stringer("status", a.Status), zap.Strings("needs removed", a.RemoveNeeds))
	return nil
}

func (l *locker) api() typedcoordinationv1.LeaseInterface {
	return l.client.CoordinationV1().Leases(protocol.SystemNamespace)
}

// occupy makes the node the holder of a Lease.
func (l *locker) occupy(lease *coordinationv1.Lease, node *protocol.Node) {
	now := metav1.NewMicroTime(l.now())
	lease.Spec.HolderIdentity = &node.Name
	lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
	lease.Annotations[protocol.NodeUIDKey] = node.UID
}

// empty makes a Lease free. Its turn stays: it counts how often it was taken.
func empty(lease *coordinationv1.Lease) {
	lease.Spec.HolderIdentity = new("")
	lease.Spec.AcquireTime, lease.Spec.RenewTime = nil, nil
	for _, key := range []string{protocol.NodeUIDKey, protocol.FailuresKey, protocol.GrantKey, kube.RestoredKey} {
		delete(lease.Annotations, key)
	}
}

// putLease creates or updates a Lease.
func (l *locker) putLease(ctx context.Context, name string, exists bool, fill func(*coordinationv1.Lease)) error {
	if exists {
		return l.updateLease(ctx, name, fill)
	}
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: protocol.SystemNamespace, Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	fill(lease)
	created, err := l.api().Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating Lease %s: %w", name, err)
	}
	l.leases.Wrote(created, true)
	return nil
}

// updateLease changes a Lease where it is still as it was observed.
func (l *locker) updateLease(ctx context.Context, name string, change func(*coordinationv1.Lease)) error {
	observed, is := l.leases.Get(name)
	if !is {
		return fmt.Errorf("updating Lease %s: it is gone", name)
	}
	lease := observed.object.DeepCopy()
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	change(lease)
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	updated, err := l.api().Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("updating Lease %s: %w", name, err)
	}
	l.leases.Wrote(updated, false)
	return nil
}

func (l *locker) event(a *rules.LockerAction, kind, reason, message string) {
	l.recorder.Event(kube.Reference(a.Node), kind, reason, message)
}
