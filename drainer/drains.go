package main

import (
	"context"
	"time"

	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/protocol"
)

// drain is the drain of a node that this replica has begun, nil where there is none.
func (d *drainer) drain(node string) *drain {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drains[node]
}

// begin claims the node and watches its pods, where that is not so already.
func (d *drainer) begin(ctx context.Context, node *protocol.Node, g protocol.Grant) (*drain, error) {
	if dr := d.drain(node.Name); dr != nil {
		return dr, nil
	}
	claim, err := d.claims.take(ctx, node.Name, g)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(d.running)
	dr := &drain{
		node: node.Name, grant: g, began: claim.Spec.AcquireTime.Time, claim: claim, stop: stop,
		attempts:   map[types.UID]*attempt{},
		daemonSets: map[types.NamespacedName]*appsv1.DaemonSet{},
	}
	d.mu.Lock()
	d.drains[node.Name] = dr
	d.mu.Unlock()
	syncing, done := context.WithTimeout(watching, connect.RequestTimeout)
	defer done()
	if err := dr.watchPods(watching, syncing, d.client, func() { d.queue.Add(node.Name) }); err != nil {
		d.end(ctx, node.Name)
		return nil, err
	}
	go d.keepClaim(watching, dr)
	return dr, nil
}

// keepClaim renews the claim. Where that fails for as long as the claim lasts,
// the drain is given up: another replica may be at it.
func (d *drainer) keepClaim(ctx context.Context, dr *drain) {
	ticker := time.NewTicker(d.claims.duration / 3)
	defer ticker.Stop()
	renewed := d.now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		dr.mu.Lock()
		claim, err := d.claims.renew(ctx, dr.claim)
		if err == nil {
			dr.claim, renewed = claim, d.now()
		}
		dr.mu.Unlock()
		if err != nil && ctx.Err() == nil && (apierrors.IsConflict(err) || d.now().Sub(renewed) > d.claims.duration) {
			d.log.Warn("giving up a claim", zap.String("node", dr.node), zap.Error(err))
			d.forget(dr)
			d.queue.Add(dr.node)
			return
		}
	}
}

// forget drops the drain without giving its claim back.
func (d *drainer) forget(dr *drain) {
	d.mu.Lock()
	if d.drains[dr.node] == dr {
		delete(d.drains, dr.node)
	}
	d.mu.Unlock()
	dr.stop()
	d.metrics.blocked(dr.node, 0)
}

// end drops the drain and its claim.
func (d *drainer) end(ctx context.Context, node string) {
	dr := d.drain(node)
	if dr == nil {
		return
	}
	d.forget(dr)
	dr.mu.Lock()
	defer dr.mu.Unlock()
	if err := d.claims.end(ctx, dr.claim); err != nil {
		d.log.Warn("the claim will run out by itself", zap.Error(err))
	}
}

// handOver gives all claims to whichever replica is left.
func (d *drainer) handOver(ctx context.Context) {
	d.mu.Lock()
	drains := d.drains
	d.drains = map[string]*drain{}
	d.mu.Unlock()
	for _, dr := range drains {
		dr.stop()
		dr.mu.Lock()
		if err := d.claims.handOver(ctx, dr.claim); err != nil {
			d.log.Warn("the claim will run out by itself", zap.Error(err))
		}
		dr.mu.Unlock()
	}
}
