package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/protocol"
)

// claims shares the nodes between the replicas: one that works at a node holds
// the Lease drain.<node>. A claim is about not doing work twice, not about
// safety: that is in the resourceVersion of every write.
type claims struct {
	leases   typedcoordinationv1.LeaseInterface
	identity string
	duration time.Duration
	now      func() time.Time
}

// errClaimed says that another replica works at the node.
type errClaimed struct {
	by    string
	until time.Duration
}

func (e errClaimed) Error() string { return fmt.Sprintf("claimed by %q", e.by) }

// claimName is the Lease's name: drain.<node>, or a hash where that is too long
// for a name.
func claimName(node string) string {
	if name := "drain." + node; len(name) <= 253 {
		return name
	}
	return fmt.Sprintf("drain.%x", sha256.Sum256([]byte(node)))
}

// take claims the node for the drain under g. The Lease's acquireTime is when
// that drain began, also where an earlier replica began it.
func (c *claims) take(ctx context.Context, node string, g protocol.Grant) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	now := metav1.NewMicroTime(c.now())
	seconds := int32(c.duration / time.Second)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name:        claimName(node),
			Annotations: map[string]string{protocol.GrantKey: g.String(), protocol.NodeKey: node},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &c.identity, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now,
		},
	}
	created, err := c.leases.Create(ctx, lease, metav1.CreateOptions{})
	if err == nil {
		return created, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("claiming node %s: %w", node, err)
	}
	old, err := c.leases.Get(ctx, lease.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the claim of node %s: %w", node, err)
	}
	if by, left := c.heldByOther(old); left > 0 {
		return nil, errClaimed{by, left}
	}
	lease.ResourceVersion = old.ResourceVersion
	if old.Annotations[protocol.GrantKey] == g.String() && old.Spec.AcquireTime != nil {
		lease.Spec.AcquireTime = old.Spec.AcquireTime
	}
	taken, err := c.leases.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("taking over the claim of node %s: %w", node, err)
	}
	return taken, nil
}

// heldByOther tells which other replica holds the claim, and for how long it
// still may.
func (c *claims) heldByOther(l *coordinationv1.Lease) (string, time.Duration) {
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || *l.Spec.HolderIdentity == c.identity || l.Spec.RenewTime == nil {
		return "", 0
	}
	duration := c.duration
	if s := l.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		duration = time.Duration(*s) * time.Second
	}
	return *l.Spec.HolderIdentity, l.Spec.RenewTime.Add(duration).Sub(c.now())
}

// renew keeps the claim.
func (c *claims) renew(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	lease = lease.DeepCopy()
	now := metav1.NewMicroTime(c.now())
	lease.Spec.RenewTime = &now
	renewed, err := c.leases.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("renewing claim %s: %w", lease.Name, err)
	}
	return renewed, nil
}

// end deletes the claim: the drain is over.
func (c *claims) end(ctx context.Context, lease *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	err := c.leases.Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID: &lease.UID, ResourceVersion: &lease.ResourceVersion,
	}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting claim %s: %w", lease.Name, err)
	}
	return nil
}

// handOver empties the claim, so that another replica goes on at once. When the
// drain began stays in it.
func (c *claims) handOver(ctx context.Context, lease *coordinationv1.Lease) error {
	lease = lease.DeepCopy()
	empty := ""
	lease.Spec.HolderIdentity = &empty
	if _, err := c.leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("handing over claim %s: %w", lease.Name, err)
	}
	return nil
}
