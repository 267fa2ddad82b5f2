package main

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ganglion.dev/test/history"
)

// follower knows each node as the watch of a recorder last told.
type follower struct {
	mu      sync.Mutex
	nodes   map[string]version
	changed chan struct{} // closed, and made anew, with every version
}

// version is a node and when the watch told of it.
type version struct {
	node *corev1.Node
	seen time.Time
}

// follow follows until ctx is done.
func follow(ctx context.Context, r *history.Recorder) *follower {
	f := &follower{nodes: map[string]version{}, changed: make(chan struct{})}
	go func() {
		for n := 0; ; {
			changed := r.Changed()
			events := r.After(n)
			n += len(events)
			f.take(events)
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}()
	return f
}

func (f *follower) take(events []history.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		if node, is := e.Object.(*corev1.Node); is {
			f.nodes[node.Name] = version{node, e.Seen}
		}
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// until waits until an annotation of a node is as it has to be, and tells when the watch
// told of the version that it is in by then.
func (f *follower) until(ctx context.Context, node, key string, holds func(value string, there bool) bool) (time.Time, error) {
	for {
		f.mu.Lock()
		v, changed := f.nodes[node], f.changed
		f.mu.Unlock()
		if v.node != nil {
			if value, there := v.node.Annotations[key]; holds(value, there) {
				return v.seen, nil
			}
		}
		select {
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-changed:
		}
	}
}

func isThere(_ string, there bool) bool  { return there }
func isAbsent(_ string, there bool) bool { return !there }
