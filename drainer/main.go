package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/daemon"
	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
)

type options struct {
	identity string
	claim    time.Duration
	workers  int
}

func main() { os.Exit(daemon.Main(&options{})) }

// Name implements daemon.Component.
func (o *options) Name() string { return "drainer" }

// Bind implements daemon.Component.
func (o *options) Bind(fs *flag.FlagSet) {
	hostname, _ := os.Hostname()
	fs.StringVar(&o.identity, "identity", hostname, "`name` of this replica in the claims of nodes")
	fs.DurationVar(&o.claim, "claim-duration", 15*time.Second, "`how long` a replica that is not heard of keeps its nodes")
	fs.IntVar(&o.workers, "workers", 8, "`how many` nodes are worked at in the same instant; a drain that waits needs none")
}

// Validate implements daemon.Component.
func (o *options) Validate() []error {
	var errs []error
	if o.identity == "" {
		errs = append(errs, errors.New("--identity: it must be given: the host has no name"))
	}
	if o.claim < time.Second {
		errs = append(errs, fmt.Errorf("--claim-duration %s: want 1s or more", o.claim))
	}
	if o.workers < 1 {
		errs = append(errs, fmt.Errorf("--workers %d: want 1 or more", o.workers))
	}
	return errs
}

// rights are what deploy/base/drainer grants.
var rights = [][]connect.Right{
	connect.Rights("", "nodes", "", "", "list", "watch", "patch"),
	connect.Rights("", "pods", "", "", "list", "watch"),
	connect.Rights("", "pods", "eviction", "", "create"),
	connect.Rights("apps", "daemonsets", "", "", "get"),
	connect.Rights("coordination.k8s.io", "leases", "", protocol.SystemNamespace, "get", "create", "update", "delete"),
	connect.Rights(protocol.Domain, "nodesmaintenancewindows", "", "", "list", "watch"),
	connect.Rights(protocol.Domain, "rebootprocedures", "", protocol.NodesNamespace, "get"),
	connect.Rights("", "events", "", metav1.NamespaceDefault, "create", "patch"),
}

// Run implements daemon.Component.
func (o *options) Run(ctx context.Context, env *daemon.Env) error {
	api, err := kube.Connect(ctx, env, o.Name(), rights...)
	if err != nil {
		return err
	}
	d := &drainer{
		log: env.Log, client: api.Core, procedures: api.Ours.Procedures(protocol.NodesNamespace),
		recorder: api.Recorder,
		queue:    kube.NewQueue(), metrics: newMetrics(env.Registry), now: time.Now,
		running: ctx, drains: map[string]*drain{},
		claims: &claims{
			leases:   api.Core.CoordinationV1().Leases(protocol.SystemNamespace),
			identity: o.identity, duration: o.claim, now: time.Now,
		},
	}
	d.nodes = kube.NewTracker(kube.Node, func(o metav1.Object) { d.queue.Add(o.GetName()) })
	d.windows = kube.NewTracker(kube.Window, func(w metav1.Object) {
		for node, n := range d.nodes.Snapshot() {
			if n.State.Current().Window == w.GetName() {
				d.queue.Add(node)
			}
		}
	})
	err = kube.AwaitSync(ctx, env,
		kube.Follow(ctx, kube.WatchNodes(api.Core), &corev1.Node{}, kube.TrimNode, d.nodes.Handler()),
		kube.Follow(ctx, api.Ours.WatchWindows(), &v1alpha1.NodesMaintenanceWindow{}, nil, d.windows.Handler()),
	)
	if err != nil {
		return err
	}
	kube.Work(ctx, env, d.queue, o.workers, d.reconcile)
	handing, done := context.WithTimeout(context.Background(), 3*time.Second)
	defer done()
	d.handOver(handing)
	return nil
}
