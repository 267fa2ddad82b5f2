package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// startTimeout is how long the control plane may take to serve: it takes some
// seconds on an idle machine.
const startTimeout = 2 * time.Minute

// Options say how a cluster is run. The zero value is good.
type Options struct {
	// Binaries of the control plane; those of [Build] where it is empty.
	Binaries Binaries
	// Progress gets a line for whatever takes long; discarded where it is nil.
	Progress io.Writer
	// KeepDir keeps the directory with state and logs.
	KeepDir bool
}

// Cluster is a control plane that runs.
type Cluster struct {
	options Options
	dir     string
	release func() // gives the directory up
	tokens  map[string]string
	config  *rest.Config
	admin   kubernetes.Interface

	port, etcdPort, etcdPeerPort int

	apiServer  *Process
	components []*Process // all of them, in the order of their start

	mu        sync.Mutex
	stopped   bool
	processes map[*Process]struct{} // that run
}

// Start starts a control plane and waits until it serves: the API server is
// ready and service accounts are made. It runs until Stop, or until this
// process ends, in whatever way.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Binaries == (Binaries{}) {
		b, err := Build(ctx, o.Progress)
		if err != nil {
			return nil, err
		}
		o.Binaries = b
	}
	dir, release, err := newDir(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cluster{options: o, dir: dir, release: release, processes: map[*Process]struct{}{}}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the control plane: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.startComponents("etcd", "kube-apiserver"); err != nil {
		return err
	}
	if err := c.waitFor(ctx, "the API server to be ready", c.apiServerReady); err != nil {
		return err
	}
	if err := c.startComponents("kube-controller-manager", "kube-scheduler", "kwok"); err != nil {
		return err
	}
	return c.waitFor(ctx, "service accounts to be made", c.controllersReady)
}

// waitFor waits for a condition. It gives up at the context's end, or when a
// component ends, with the last words of that one.
func (c *Cluster) waitFor(ctx context.Context, what string, holds func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds(ctx)
		if err == nil {
			return nil
		}
		if dead := c.Healthy(); dead != nil {
			return dead
		}
		select {
		case <-ctx.Done():
			last := c.components[len(c.components)-1]
			return fmt.Errorf("waiting for %s: %w; last: %w\n%s:\n%s", what, ctx.Err(), err, last.Log(), last.LogTail(20))
		case <-tick.C:
		}
	}
}

// Healthy is nil while every component runs. The error has the last words of
// those that do not.
func (c *Cluster) Healthy() error {
	var errs []error
	for _, p := range c.components {
		if !p.Running() {
			errs = append(errs, fmt.Errorf("%s has ended; %s:\n%s", p.Name(), p.Log(), p.LogTail(20)))
		}
	}
	return errors.Join(errs...)
}

// Stop ends every process of the cluster and removes its directory. It can be
// called more than once.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	already := c.stopped
	c.stopped = true
	running := make([]*Process, 0, len(c.processes))
	for p := range c.processes {
		running = append(running, p)
	}
	c.mu.Unlock()
	if already {
		return nil
	}
	var errs []error
	for _, p := range running { // all at once, then wait: none can do anything without the others
		errs = append(errs, p.Signal(os.Kill))
	}
	for _, p := range running {
		<-p.Done()
	}
	if c.options.KeepDir {
		errs = append(errs, os.Remove(filepath.Join(c.dir, "lock"))) // without it, it is never swept
	} else {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	c.release()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stopping the cluster: %w", err)
	}
	return nil
}

// admit starts a process, unless the cluster is stopped.
func (c *Cluster) admit(p *Process, start func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("the cluster is stopped")
	}
	if err := start(); err != nil {
		return err
	}
	c.processes[p] = struct{}{}
	return nil
}

// dismiss notes that a process has ended.
func (c *Cluster) dismiss(p *Process, done chan struct{}) {
	c.mu.Lock()
	delete(c.processes, p)
	c.mu.Unlock()
	close(done)
}

// Dir is the cluster's directory: state, certificates, kubeconfig files, logs.
func (c *Cluster) Dir() string { return c.dir }

// AdminConfig is the client configuration of a cluster admin, without any rate limit.
func (c *Cluster) AdminConfig() *rest.Config { return rest.CopyConfig(c.config) }

// ConfigFor is the client configuration of whoever has the token, without any rate limit.
func (c *Cluster) ConfigFor(token string) *rest.Config {
	config := rest.CopyConfig(c.config)
	config.BearerToken = token
	return config
}

// Admin is a client with all rights.
func (c *Cluster) Admin() kubernetes.Interface { return c.admin }
