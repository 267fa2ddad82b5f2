package kube

import (
	"maps"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Tracker is a view of the objects of one kind, by name, in which both what an
// informer delivers and a daemon's own writes are visible: of two versions of an
// object it keeps the newer.
type Tracker[T any] struct {
	convert func(metav1.Object) T
	changed func(metav1.Object)

	mu    sync.Mutex
	items map[string]tracked[T]
}

type tracked[T any] struct {
	uid     types.UID
	version string
	item    T
}

// NewTracker makes an empty Tracker. changed is told every object that an
// informer delivers, or delivers as gone, from any goroutine.
func NewTracker[O metav1.Object, T any](convert func(O) T, changed func(metav1.Object)) *Tracker[T] {
	return &Tracker[T]{
		convert: func(o metav1.Object) T { return convert(o.(O)) },
		changed: changed,
		items:   map[string]tracked[T]{},
	}
}

// Handler feeds the Tracker from an informer.
func (t *Tracker[T]) Handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.observe(o.(metav1.Object)) },
		UpdateFunc: func(_, o any) { t.observe(o.(metav1.Object)) },
		DeleteFunc: func(o any) {
			if gone, is := o.(cache.DeletedFinalStateUnknown); is {
				o = gone.Obj
			}
			if object, is := o.(metav1.Object); is {
				t.remove(object)
			}
		},
	}
}

func (t *Tracker[T]) observe(o metav1.Object) {
	t.mu.Lock()
	old, is := t.items[o.GetName()]
	if is && old.uid == o.GetUID() && !newer(o.GetResourceVersion(), old.version) {
		t.mu.Unlock()
		return
	}
	t.items[o.GetName()] = tracked[T]{o.GetUID(), o.GetResourceVersion(), t.convert(o)}
	t.mu.Unlock()
	t.changed(o)
}

func (t *Tracker[T]) remove(o metav1.Object) {
	t.mu.Lock()
	if t.items[o.GetName()].uid == o.GetUID() {
		delete(t.items, o.GetName())
	}
	t.mu.Unlock()
	t.changed(o)
}

// Wrote makes the outcome of an own write visible at once. An object that has
// meanwhile been deleted, or made again, is left as it is; created says that the
// write made it.
func (t *Tracker[T]) Wrote(o metav1.Object, created bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, is := t.items[o.GetName()]
	switch {
	case !is && !created, is && old.uid != o.GetUID():
	case is && !newer(o.GetResourceVersion(), old.version):
	default:
		t.items[o.GetName()] = tracked[T]{o.GetUID(), o.GetResourceVersion(), t.convert(o)}
	}
}

// Get is the item of that name.
func (t *Tracker[T]) Get(name string) (T, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	item, is := t.items[name]
	return item.item, is
}

// Snapshot is all items by name. The map is the caller's, the items are not.
func (t *Tracker[T]) Snapshot() map[string]T {
	t.mu.Lock()
	defer t.mu.Unlock()
	snapshot := make(map[string]T, len(t.items))
	for name, item := range maps.All(t.items) {
		snapshot[name] = item.item
	}
	return snapshot
}

// newer tells whether one version is newer than another. Versions that cannot be
// compared are taken to have come in order.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}
