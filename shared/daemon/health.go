package daemon

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Health is what the probes tell.
type Health struct {
	now func() time.Time

	mu    sync.Mutex
	loops map[string]*loop
	ready map[string]error
}

type loop struct {
	within time.Duration
	last   time.Time
}

// NewHealth makes a Health that is alive and not ready.
func NewHealth(now func() time.Time) *Health {
	return &Health{now: now, loops: map[string]*loop{}, ready: map[string]error{}}
}

// Beat says that a loop is alive, and will say so again within the time given.
func (h *Health) Beat(name string, within time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loops[name] = &loop{within, h.now()}
}

// Forget says that a loop has ended, as it should.
func (h *Health) Forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.loops, name)
}

var errNotYet = errors.New("not yet")

// Need says that the daemon is not ready before SetReady(name, nil).
func (h *Health) Need(name string) { h.SetReady(name, errNotYet) }

// SetReady says that what the daemon needs is there, or what is wrong with it.
func (h *Health) SetReady(name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready[name] = err
}

// Alive is an error that names every loop that is late.
func (h *Health) Alive() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(h.loops)) {
		l := h.loops[name]
		if late := h.now().Sub(l.last) - l.within; late > 0 {
			errs = append(errs, fmt.Errorf("loop %s is late by %s", name, late.Round(time.Second)))
		}
	}
	return errors.Join(errs...)
}

// Ready is an error that names everything that is needed and not there.
func (h *Health) Ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(h.ready)) {
		if err := h.ready[name]; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
