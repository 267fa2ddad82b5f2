package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/daemon"
)

// Follow feeds a handler from a watch until the context is done. It tells
// whether all that was there at first has been delivered.
func Follow(ctx context.Context, lw cache.ListerWatcher, object runtime.Object, trim cache.TransformFunc, handler cache.ResourceEventHandler) cache.InformerSynced {
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: lw, ObjectType: object, Transform: trim, Handler: handler,
	})
	go informer.RunWithContext(ctx)
	return informer.HasSynced
}

// AwaitSync returns when all caches are filled. Until then the daemon is not ready.
func AwaitSync(ctx context.Context, env *daemon.Env, synced ...cache.InformerSynced) error {
	env.Health.Need("caches")
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("waiting for the caches: %w", context.Cause(ctx))
	}
	env.Health.SetReady("caches", nil)
	return nil
}

// NewQueue makes a queue of names, each of which is retried after 50 ms, then
// less and less often, but every 15 s at the least: what was held up by an outage
// goes on soon after its end.
func NewQueue() workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 15*time.Second))
}

// Reconcile does what one object asks for now, and returns when to look at it
// again without an event; 0: never.
type Reconcile func(ctx context.Context, name string) (time.Duration, error)

// beatEvery is how often an idle loop says that it is alive.
const beatEvery = 20 * time.Second

// Work takes names from the queue, each by one worker at a time, until the
// context is done.
func Work(ctx context.Context, env *daemon.Env, queue workqueue.TypedRateLimitingInterface[string], workers int, reconcile Reconcile) {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for {
				name, stopped := queue.Get()
				if stopped {
					return
				}
				work(ctx, env, queue, name, reconcile)
			}
		})
	}
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		env.Health.Beat("workers", 3*beatEvery)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	queue.ShutDown()
	running.Wait()
}

func work(ctx context.Context, env *daemon.Env, queue workqueue.TypedRateLimitingInterface[string], name string, reconcile Reconcile) {
	defer queue.Done(name)
	again, err := reconcile(ctx, name)
	if err == nil {
		queue.Forget(name)
		if again > 0 {
			queue.AddAfter(name, again)
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	queue.AddRateLimited(name)
	level := env.Log.Warn
	if apierrors.IsConflict(err) {
		level = env.Log.Debug // somebody was faster; what it wrote is on its way here
	}
	level("will try again", zap.String("name", name), zap.Error(err))
}

// WatchNodes lists and watches the nodes.
func WatchNodes(client kubernetes.Interface) cache.ListerWatcher {
	return cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll, fields.Everything())
}

// Window is a window with its defaults filled in.
func Window(w *v1alpha1.NodesMaintenanceWindow) *v1alpha1.NodesMaintenanceWindow {
	w = w.DeepCopy()
	w.Default()
	return w
}
