package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"ganglion.dev/shared/api/v1alpha1/client"
	"ganglion.dev/shared/protocol"
)

// Event is one version of one object.
type Event struct {
	// Revision orders the events of all kinds: all objects are in one etcd.
	Revision uint64
	// Seen is when the recorder got it.
	Seen time.Time
	// Gone says that the object was deleted; Object is its last version.
	Gone bool
	// Gap says that versions before this one were missed.
	Gap    bool
	Object runtime.Object
}

// Recorder keeps the events of a cluster.
type Recorder struct {
	mu     sync.Mutex
	events []Event
	// changed is closed, and made anew, with every event.
	changed chan struct{}

	stop    context.CancelFunc
	running sync.WaitGroup
}

// Record starts to watch.
func Record(ctx context.Context, config *rest.Config) (*Recorder, error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the recorder's client: %w", err)
	}
	ours, err := client.New(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	r := &Recorder{changed: make(chan struct{}), stop: stop}
	all := fields.Everything()
	for _, source := range []cache.ListerWatcher{
		cache.NewListWatchFromClient(core.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll, all),
		cache.NewListWatchFromClient(core.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, all),
		cache.NewListWatchFromClient(core.CoordinationV1().RESTClient(), "leases", protocol.SystemNamespace, all),
		cache.NewListWatchFromClient(core.BatchV1().RESTClient(), "jobs", protocol.NodesNamespace, all),
		ours.WatchWindows(),
	} {
		lw := cache.ToListerWatcherWithContext(source)
		revision, err := r.list(ctx, lw, false)
		if err != nil {
			stop()
			return nil, err
		}
		r.running.Go(func() { r.follow(ctx, lw, revision) })
	}
	return r, nil
}

// Stop ends the watching.
func (r *Recorder) Stop() {
	r.stop()
	r.running.Wait()
}

// Events are all events so far, in order.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	events := slices.Clone(r.events)
	r.mu.Unlock()
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.Revision, b.Revision) })
	return events
}

// After are the events that came after the first n, in the order in which they came.
func (r *Recorder) After(n int) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events[min(n, len(r.events)):])
}

// Changed is closed at the next event.
func (r *Recorder) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *Recorder) add(e Event) {
	accessor, err := apimeta.Accessor(e.Object)
	if err != nil {
		return // a bookmark's or an error's object, which has no metadata
	}
	if e.Revision, err = strconv.ParseUint(accessor.GetResourceVersion(), 10, 64); err != nil {
		return
	}
	e.Seen = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	close(r.changed)
	r.changed = make(chan struct{})
}

// list adds what is there, and returns the revision to watch from.
func (r *Recorder) list(ctx context.Context, lw cache.ListerWatcherWithContext, gap bool) (string, error) {
	list, err := lw.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("listing for the recorder: %w", err)
	}
	if err := apimeta.EachListItem(list, func(o runtime.Object) error {
		r.add(Event{Object: o, Gap: gap})
		return nil
	}); err != nil {
		return "", fmt.Errorf("listing for the recorder: %w", err)
	}
	accessor, err := apimeta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("listing for the recorder: %w", err)
	}
	return accessor.GetResourceVersion(), nil
}

// follow watches from a revision on, across outages.
func (r *Recorder) follow(ctx context.Context, lw cache.ListerWatcherWithContext, revision string) {
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for ctx.Err() == nil {
		w, err := lw.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: revision, AllowWatchBookmarks: true})
		if err == nil {
			revision, err = r.drain(ctx, w, revision)
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			if fresh, err := r.list(ctx, lw, true); err == nil {
				revision = fresh
			}
		}
		select {
		case <-ctx.Done():
		case <-retry.C:
		}
	}
}

// drain takes events from a watch until it ends.
func (r *Recorder) drain(ctx context.Context, w watch.Interface, revision string) (string, error) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return revision, nil
		case e, open := <-w.ResultChan():
			if !open {
				return revision, nil
			}
			if e.Type == watch.Error {
				return revision, apierrors.FromObject(e.Object)
			}
			if accessor, err := apimeta.Accessor(e.Object); err == nil {
				revision = accessor.GetResourceVersion()
			}
			if e.Type != watch.Bookmark {
				r.add(Event{Object: e.Object, Gone: e.Type == watch.Deleted})
			}
		}
	}
}
