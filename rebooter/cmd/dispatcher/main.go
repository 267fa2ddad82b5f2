package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/daemon"
	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
)

type options struct{ workers int }

func main() { os.Exit(daemon.Main(&options{})) }

// Name implements daemon.Component.
func (o *options) Name() string { return "dispatcher" }

// Bind implements daemon.Component.
func (o *options) Bind(fs *flag.FlagSet) {
	fs.IntVar(&o.workers, "workers", 4, "`how many` nodes are worked at in the same instant; a reboot that is waited for needs none")
}

// Validate implements daemon.Component.
func (o *options) Validate() []error {
	if o.workers < 1 {
		return []error{fmt.Errorf("--workers %d: want 1 or more", o.workers)}
	}
	return nil
}

// rights are what deploy/base/dispatcher grants.
var rights = [][]connect.Right{
	connect.Rights("", "nodes", "", "", "list", "watch", "patch"),
	connect.Rights("coordination.k8s.io", "leases", "", protocol.SystemNamespace, "get"),
	connect.Rights("batch", "jobs", "", protocol.NodesNamespace, "list", "watch", "create", "delete"),
	connect.Rights("", "pods", "", protocol.NodesNamespace, "list", "watch"),
	connect.Rights(protocol.Domain, "nodesmaintenancewindows", "", "", "list", "watch"),
	connect.Rights(protocol.Domain, "rebootprocedures", "", protocol.NodesNamespace, "list", "watch"),
	connect.Rights("", "events", "", metav1.NamespaceDefault, "create", "patch"),
}

// Run implements daemon.Component.
func (o *options) Run(ctx context.Context, env *daemon.Env) error {
	api, err := kube.Connect(ctx, env, o.Name(), rights...)
	if err != nil {
		return err
	}
	d := &dispatcher{
		log: env.Log, client: api.Core, recorder: api.Recorder,
		queue: kube.NewQueue(), metrics: newMetrics(env.Registry), now: time.Now,
		problems: map[string]string{},
	}
	d.nodes = kube.NewTracker(kube.Node, func(o metav1.Object) { d.queue.Add(o.GetName()) })
	// A Job, and a pod of one, carries the name of its node.
	nodeOf := func(o metav1.Object) { d.queue.Add(o.GetAnnotations()[protocol.NodeKey]) }
	d.jobs = kube.NewTracker(func(j *batchv1.Job) *batchv1.Job { return j }, nodeOf)
	d.pods = kube.NewTracker(func(p *corev1.Pod) *corev1.Pod { return p }, nodeOf)
	// What a window or a procedure says is about the nodes that are in flight.
	inFlight := func(metav1.Object) {
		for name, node := range d.nodes.Snapshot() {
			if !node.State.Current().IsZero() || node.State.Leftover() {
				d.queue.Add(name)
			}
		}
	}
	d.windows = kube.NewTracker(kube.Window, inFlight)
	d.procedures = kube.NewTracker(func(p *v1alpha1.RebootProcedure) *v1alpha1.RebootProcedure {
		p = p.DeepCopy()
		p.Default()
		return p
	}, inFlight)
	err = kube.AwaitSync(ctx, env,
		kube.Follow(ctx, kube.WatchNodes(api.Core), &corev1.Node{}, kube.TrimNode, d.nodes.Handler()),
		kube.Follow(ctx, watchGrants(api.Core.BatchV1().RESTClient(), "jobs"), &batchv1.Job{}, nil, d.jobs.Handler()),
		kube.Follow(ctx, watchGrants(api.Core.CoreV1().RESTClient(), "pods"), &corev1.Pod{}, nil, d.pods.Handler()),
		kube.Follow(ctx, api.Ours.WatchWindows(), &v1alpha1.NodesMaintenanceWindow{}, nil, d.windows.Handler()),
		kube.Follow(ctx, api.Ours.WatchProcedures(protocol.NodesNamespace), &v1alpha1.RebootProcedure{}, nil, d.procedures.Handler()),
	)
	if err != nil {
		return err
	}
	kube.Work(ctx, env, d.queue, o.workers, d.reconcile)
	return nil
}

// watchGrants watches what was made for a grant, in the namespace of reboot Jobs.
func watchGrants(c rest.Interface, resource string) cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(c, resource, protocol.NodesNamespace,
		func(o *metav1.ListOptions) { o.LabelSelector = protocol.GrantKey })
}
