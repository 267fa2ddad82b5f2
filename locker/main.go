package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"go.uber.org/zap"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/daemon"
	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

type options struct {
	period     time.Duration
	identity   string
	lease      time.Duration
	backoff    time.Duration
	backoffMax time.Duration
}

func main() { os.Exit(daemon.Main(&options{})) }

// Name implements daemon.Component.
func (o *options) Name() string { return "locker" }

// Bind implements daemon.Component.
func (o *options) Bind(fs *flag.FlagSet) {
	hostname, _ := os.Hostname()
	fs.DurationVar(&o.period, "period", time.Hour, "`how often` everything is evaluated again, events aside")
	fs.StringVar(&o.identity, "identity", hostname, "`name` of this replica in the leader election")
	fs.DurationVar(&o.lease, "leader-lease", 15*time.Second, "`how long` a leader that is not heard of stays the leader")
	fs.DurationVar(&o.backoff, "failure-backoff", 10*time.Second, "`how long` a node whose cycle failed is left alone; doubled with each further failure")
	fs.DurationVar(&o.backoffMax, "failure-backoff-max", time.Hour, "`most` that it is left alone")
}

// Validate implements daemon.Component.
func (o *options) Validate() []error {
	var errs []error
	if o.period < time.Second {
		errs = append(errs, fmt.Errorf("--period %s: want 1s or more", o.period))
	}
	if o.identity == "" {
		errs = append(errs, errors.New("--identity: it must be given: the host has no name"))
	}
	if o.lease < time.Second {
		errs = append(errs, fmt.Errorf("--leader-lease %s: want 1s or more", o.lease))
	}
	if o.backoff <= 0 {
		errs = append(errs, fmt.Errorf("--failure-backoff %s: want more than 0", o.backoff))
	}
	if o.backoffMax < o.backoff {
		errs = append(errs, fmt.Errorf("--failure-backoff-max %s: want --failure-backoff (%s) or more", o.backoffMax, o.backoff))
	}
	return errs
}

// rights are what deploy/base/locker grants.
var rights = [][]connect.Right{
	connect.Rights("", "nodes", "", "", "get", "list", "watch", "patch"),
	connect.Rights("coordination.k8s.io", "leases", "", protocol.SystemNamespace, "get", "list", "watch", "create", "update"),
	connect.Rights(protocol.Domain, "nodesmaintenancewindows", "", "", "list", "watch"),
	connect.Rights(protocol.Domain, "nodesmaintenancewindows", "status", "", "update"),
	connect.Rights("", "events", "", metav1.NamespaceDefault, "create", "patch"),
}

// Run implements daemon.Component.
func (o *options) Run(ctx context.Context, env *daemon.Env) error {
	api, err := kube.Connect(ctx, env, o.Name(), rights...)
	if err != nil {
		return err
	}
	l := &locker{
		log: env.Log, health: env.Health, client: api.Core,
		recorder: api.Recorder,
		backoff:  rules.Backoff{Base: o.backoff, Max: o.backoffMax},
		period:   o.period, metrics: newMetrics(env.Registry), now: time.Now,
		changed: make(chan struct{}, 1),
	}
	wake := func(metav1.Object) { l.wake() }
	l.nodes = kube.NewTracker(kube.Node, wake)
	l.leases = kube.NewTracker(func(lease *coordinationv1.Lease) slotLease { return slotLease{kube.Lease(lease), lease} }, wake)
	l.windows = kube.NewTracker(kube.Window, wake)
	l.explain = &explainer{
		log: env.Log, recorder: l.recorder, windows: l.windows, api: api.Ours.Windows(), metrics: l.metrics, now: time.Now,
	}
	slots := cache.NewFilteredListWatchFromClient(api.Core.CoordinationV1().RESTClient(), "leases", protocol.SystemNamespace,
		func(options *metav1.ListOptions) { options.LabelSelector = protocol.WindowKey })
	err = kube.AwaitSync(ctx, env,
		kube.Follow(ctx, kube.WatchNodes(api.Core), &corev1.Node{}, kube.TrimNode, l.nodes.Handler()),
		kube.Follow(ctx, slots, &coordinationv1.Lease{}, nil, l.leases.Handler()),
		kube.Follow(ctx, api.Ours.WatchWindows(), &v1alpha1.NodesMaintenanceWindow{}, nil, l.windows.Handler()),
	)
	if err != nil {
		return err
	}
	return o.elect(ctx, l)
}

// elect lets one replica at a time decide. That two of them could both think they
// are the one is no danger, only work done twice: safety is in the
// resourceVersion of every write.
func (o *options) elect(ctx context.Context, l *locker) error {
	var leading sync.Mutex
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "locker", Namespace: protocol.SystemNamespace},
			Client:     l.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.identity},
		},
		LeaseDuration: o.lease, RenewDeadline: o.lease * 2 / 3, RetryPeriod: o.lease / 8,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				leading.Lock() // an earlier term may still be at its last request
				defer leading.Unlock()
				l.log.Info("leading")
				l.lead(ctx)
			},
			OnStoppedLeading: func() { l.metrics.show(nil, nil) },
			OnNewLeader:      func(identity string) { l.log.Info("the leader is", zap.String("identity", identity)) },
		},
	})
	if err != nil {
		return fmt.Errorf("preparing the leader election: %w", err)
	}
	for ctx.Err() == nil {
		elector.Run(ctx)
	}
	return nil
}
