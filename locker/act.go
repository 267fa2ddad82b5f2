package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

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
	for _, request := range a.Requests() {
		if err := l.send(ctx, a, request); err != nil {
			return err
		}
	}
	l.tell(a)
	return nil
}

// send sends one request of a mutation.
func (l *locker) send(ctx context.Context, a *rules.LockerAction, request rules.LockerRequest) error {
	switch request {
	case rules.CountSlots:
		return l.checkCap(ctx, a)
	case rules.FindBacked:
		return kube.CheckBacked(ctx, l.api(), a.Grant, a.Node)
	case rules.FindUnbacked:
		switch err := kube.CheckBacked(ctx, l.api(), a.Grant, a.Node); {
		case err == nil:
			return fmt.Errorf("grant %s is backed by its Lease after all", a.Grant)
		case !kube.IsUnbacked(err):
			return err
		}
		return nil
	case rules.FindHolderGone:
		return l.checkGone(ctx, a)
	case rules.FindElsewhere:
		return l.checkElsewhere(ctx, a)
	case rules.WriteSlot:
		return l.writeSlot(ctx, a)
	case rules.WriteControlPlane:
		if a.Kind == rules.FreeControlPlane {
			return l.putLease(ctx, a.Lease.Name, a.Lease, empty)
		}
		return l.takeControlPlane(ctx, a)
	case rules.WriteNode:
		change := kube.Set(protocol.LockerKey, a.Status)
		for _, key := range a.RemoveNeeds {
			change.Annotations[key] = nil
		}
		return l.patch(ctx, a, change)
	}
	return fmt.Errorf("unknown request %q", request)
}

// writeSlot takes the slot, records when its holder was restored, or frees it.
func (l *locker) writeSlot(ctx context.Context, a *rules.LockerAction) error {
	switch a.Kind {
	case rules.Settle:
		return l.putLease(ctx, a.Lease.Name, a.Lease, func(lease *coordinationv1.Lease) {
			lease.Annotations[kube.RestoredKey] = l.now().UTC().Format(time.RFC3339)
		})
	case rules.Free:
		return l.putLease(ctx, a.Lease.Name, a.Lease, empty)
	}
	return l.putLease(ctx, a.Grant.Slot.String(), a.Lease, func(lease *coordinationv1.Lease) {
		l.occupy(lease, a.Node)
		lease.Labels[protocol.WindowKey] = a.Grant.Window
		lease.Spec.LeaseTransitions = new(int32(a.Grant.Turn))
		delete(lease.Annotations, kube.RestoredKey)
		delete(lease.Annotations, protocol.FailuresKey)
		if a.Failures > 0 {
			lease.Annotations[protocol.FailuresKey] = strconv.Itoa(a.Failures)
		}
	})
}

// tell says what was done.
func (l *locker) tell(a *rules.LockerAction) {
	switch a.Kind {
	case rules.Take, rules.Notify:
		l.event(a, corev1.EventTypeNormal, kube.EventSlotGranted, "Grant "+a.Grant.String())
	case rules.Revoke:
		l.event(a, corev1.EventTypeNormal, kube.EventSlotRevoked, fmt.Sprintf("Grant %s: %s", a.Grant, a.Status.Reason))
	case rules.Release:
		kind := corev1.EventTypeNormal
		if a.Status.Failures > 0 {
			kind = corev1.EventTypeWarning
		}
		l.event(a, kind, kube.EventSlotReleased, fmt.Sprintf("Grant %s: %s", a.Grant, a.Status.Outcome))
		l.metrics.cycles.WithLabelValues(a.Grant.Window, a.Status.Outcome).Inc()
		if a.Lease != nil {
			l.metrics.cycleSeconds.Observe(l.now().Sub(a.Lease.Acquired).Seconds())
		}
	}
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

// takeControlPlane takes the one Lease of the control plane for this grant.
func (l *locker) takeControlPlane(ctx context.Context, a *rules.LockerAction) error {
	var observed *rules.Lease
	if held, is := l.leases.Get(rules.ControlPlaneLease); is {
		observed = held.Lease
	}
	if observed != nil && observed.Held() {
		if observed.Err == nil && observed.For == a.Grant {
			return nil
		}
		return fmt.Errorf("lease %s is held by %q", rules.ControlPlaneLease, observed.Holder)
	}
	return l.putLease(ctx, rules.ControlPlaneLease, observed, func(lease *coordinationv1.Lease) {
		l.occupy(lease, a.Node)
		lease.Labels[protocol.WindowKey] = ""
		lease.Annotations[protocol.GrantKey] = a.Grant.String()
	})
}

// checkGone believes only the API server that the holder of a slot is gone.
func (l *locker) checkGone(ctx context.Context, a *rules.LockerAction) error {
	node, err := l.holder(ctx, a)
	if err == nil && node != nil {
		return fmt.Errorf("node %s, which holds slot %s, is there after all", node.Name, a.Lease.Name)
	}
	return err
}

// checkElsewhere believes only the API server that the holder of a slot is under another
// grant.
func (l *locker) checkElsewhere(ctx context.Context, a *rules.LockerAction) error {
	node, err := l.holder(ctx, a)
	switch {
	case err != nil || node == nil:
		return err
	case node.Err != nil:
		return fmt.Errorf("reading node %s, which holds slot %s: %w", node.Name, a.Lease.Name, node.Err)
	case node.State.Current().IsZero() || node.State.Current() == a.Grant:
		return fmt.Errorf("node %s, which holds slot %s, is under no other grant after all", node.Name, a.Lease.Name)
	}
	return nil
}

// holder is the node that holds the slot, as the API server has it now; nil where that
// very node is gone.
func (l *locker) holder(ctx context.Context, a *rules.LockerAction) (*protocol.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	node, err := l.client.CoreV1().Nodes().Get(ctx, a.Lease.Holder, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking for node %s, which holds slot %s: %w", a.Lease.Holder, a.Lease.Name, err)
	case string(node.UID) != a.Lease.NodeUID:
		return nil, nil
	}
	return kube.Node(node), nil
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

// putLease creates a Lease, or changes one where it is still as it was observed. The
// decision was made from that version, and not from one that has come since.
func (l *locker) putLease(ctx context.Context, name string, observed *rules.Lease, change func(*coordinationv1.Lease)) error {
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	if observed == nil {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: protocol.SystemNamespace, Labels: map[string]string{}, Annotations: map[string]string{},
		}}
		change(lease)
		created, err := l.api().Create(ctx, lease, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("creating Lease %s: %w", name, err)
		}
		l.leases.Wrote(created, true)
		return nil
	}
	now, is := l.leases.Get(name)
	if !is || now.object.ResourceVersion != observed.ResourceVersion {
		return fmt.Errorf("updating Lease %s: it has changed since version %s was decided on", name, observed.ResourceVersion)
	}
	lease := now.object.DeepCopy()
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	change(lease)
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
