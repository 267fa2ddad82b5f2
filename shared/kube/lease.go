package kube

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

// RestoredKey is the annotation of a slot Lease that tells since when its holder
// has been restored, where the window lets it settle.
const RestoredKey = protocol.Domain + "/restored"

// IsSlotLease tells whether a Lease is a slot's, by its label.
func IsSlotLease(l *coordinationv1.Lease) bool {
	_, is := l.Labels[protocol.WindowKey]
	return is
}

// Lease is what the rules need to know of a slot's Lease, or of that of the
// control plane. What cannot be read is in its Err, never guessed.
func Lease(l *coordinationv1.Lease) *rules.Lease {
	lease := &rules.Lease{Name: l.Name, NodeUID: l.Annotations[protocol.NodeUIDKey], ResourceVersion: l.ResourceVersion}
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var err error
	if l.Name == rules.ControlPlaneLease {
		if text := l.Annotations[protocol.GrantKey]; text != "" {
			if lease.For, err = protocol.ParseGrant(text); err != nil {
				fail("annotation %s: %w", protocol.GrantKey, err)
			}
		}
	} else {
		if lease.Slot, err = protocol.ParseSlot(l.Name); err != nil {
			fail("%w", err)
		} else if window := l.Labels[protocol.WindowKey]; window != lease.Slot.Window {
			fail("label %s is %q", protocol.WindowKey, window)
		}
		if l.Spec.LeaseTransitions != nil {
			lease.Turn = int(*l.Spec.LeaseTransitions)
		}
		if lease.Turn < 0 {
			fail("spec.leaseTransitions is %d", lease.Turn)
		}
	}
	if l.Spec.AcquireTime != nil {
		lease.Acquired = l.Spec.AcquireTime.Time
	}
	if l.Spec.HolderIdentity != nil {
		lease.Holder = *l.Spec.HolderIdentity
	}
	if lease.Holder != "" {
		if lease.NodeUID == "" {
			fail("it is held by %q and annotation %s is missing", lease.Holder, protocol.NodeUIDKey)
		}
		if l.Name != rules.ControlPlaneLease && lease.Turn == 0 {
			fail("it is held by %q and spec.leaseTransitions is 0", lease.Holder)
		}
	}
	if text := l.Annotations[protocol.FailuresKey]; text != "" {
		if lease.Failures, err = strconv.Atoi(text); err != nil || lease.Failures < 0 {
			fail("annotation %s: %q is not a number from 0", protocol.FailuresKey, text)
		}
	}
	if text := l.Annotations[RestoredKey]; text != "" {
		if lease.Restored, err = time.Parse(time.RFC3339, text); err != nil {
			fail("annotation %s: %q is not an RFC 3339 time", RestoredKey, text)
		}
	}
	if errs != nil {
		lease.Err = fmt.Errorf("lease %s: %w", l.Name, errors.Join(errs...))
	}
	return lease
}

// errUnbacked marks the errors of CheckBacked that are an answer, not a failure to get one.
type errUnbacked struct{ error }

func (e errUnbacked) Unwrap() error { return e.error }

// IsUnbacked tells an error of CheckBacked that says that no Lease backs the
// grant from one that says that this could not be found out.
func IsUnbacked(err error) bool {
	var unbacked errUnbacked
	return errors.As(err, &unbacked)
}

// CheckBacked asks the API server, and no cache, whether the slot's Lease agrees
// that the node has the grant. It has to be called after the node was observed
// and before the write that carries that observation's resourceVersion: a slot is
// freed only after a write to the node, so one of the two then fails.
func CheckBacked(ctx context.Context, leases typedcoordinationv1.LeaseInterface, g protocol.Grant, node *protocol.Node) error {
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	l, err := leases.Get(ctx, g.Slot.String(), metav1.GetOptions{})
	var lease *rules.Lease
	switch {
	case err == nil:
		lease = Lease(l)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading the Lease of grant %s: %w", g, err)
	}
	if err := lease.Backs(g, node); err != nil {
		return errUnbacked{fmt.Errorf("grant %s of node %s is not backed: %w", g, node.Name, err)}
	}
	return nil
}
