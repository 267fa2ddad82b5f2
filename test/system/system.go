package system

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/api/v1alpha1/client"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/test/cluster"
	"ganglion.dev/test/history"
	"ganglion.dev/test/sim"
)

// Components are the daemons that run as processes, by the names of their service
// accounts. The detectors are run by the nodes.
var Components = []string{"locker", "drainer", "dispatcher"}

// Options say how the system is run.
type Options struct {
	// Binaries are Ganglion's programs by name.
	Binaries map[string]string
	// Behavior is how the hosts behave from their start.
	Behavior sim.Behavior
	// Args come after the arguments that every daemon gets here, by component.
	Args map[string][]string
	// Idle leaves the daemons to be started by the caller.
	Idle bool
}

// System is Ganglion at work.
type System struct {
	Cluster *cluster.Cluster
	Sim     *sim.Sim
	History *history.Recorder
	// Daemons are the processes by name.
	Daemons map[string]*cluster.Process
	Client  *client.Client

	options Options
}

// Start applies deploy/, starts the daemons and begins to record.
func Start(ctx context.Context, c *cluster.Cluster, o Options) (*System, error) {
	root, err := cluster.Root()
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, filepath.Join(root, "deploy", "overlays", "default")); err != nil {
		return nil, err
	}
	s := &System{Cluster: c, Daemons: map[string]*cluster.Process{}, options: o}
	if s.Client, err = client.New(c.AdminConfig()); err != nil {
		return nil, err
	}
	if s.History, err = history.Record(ctx, c.AdminConfig()); err != nil {
		return nil, err
	}
	if s.Sim, err = sim.New(c, sim.Options{Binaries: o.Binaries, Behavior: o.Behavior}); err != nil {
		return nil, err
	}
	if o.Idle {
		return s, nil
	}
	for _, name := range Components {
		if _, err := s.StartDaemon(ctx, name, name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// StartDaemon starts a replica of a component under a name of its own.
func (s *System) StartDaemon(ctx context.Context, component, name string, args ...string) (*cluster.Process, error) {
	token, err := s.Cluster.Token(ctx, protocol.SystemNamespace, component, nil)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := s.Cluster.Kubeconfig(fmt.Sprintf("%s-%d", name, time.Now().UnixNano()), token)
	if err != nil {
		return nil, err
	}
	all := []string{"--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0", "--log-format", "console"}
	switch component {
	case "locker":
		all = append(all, "--identity", name, "--leader-lease", "3s")
	case "drainer":
		all = append(all, "--identity", name, "--claim-duration", "3s")
	}
	all = append(append(all, s.options.Args[component]...), args...)
	p, err := s.Cluster.Process(fmt.Sprintf("%s-%d", name, time.Now().UnixNano()), s.options.Binaries[component], all, nil)
	if err != nil {
		return nil, err
	}
	s.Daemons[name] = p
	return p, nil
}

// SetWindow makes the window what change makes of the default one.
func (s *System) SetWindow(ctx context.Context, name string, change func(*v1alpha1.NodesMaintenanceWindowSpec)) error {
	windows := s.Client.Windows()
	for {
		w, err := windows.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			w = &v1alpha1.NodesMaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Name: name}}
			change(&w.Spec)
			_, err = windows.Create(ctx, w, metav1.CreateOptions{})
		case err == nil:
			w.Spec = v1alpha1.NodesMaintenanceWindowSpec{}
			change(&w.Spec)
			_, err = windows.Update(ctx, w, metav1.UpdateOptions{})
		}
		if apierrors.IsConflict(err) {
			continue // the locker wrote its status
		}
		if err != nil {
			return fmt.Errorf("setting window %s: %w", name, err)
		}
		return nil
	}
}

// Stop ends the nodes, the daemons and the recording. The nodes go first, so that a
// locker that runs frees their slots.
func (s *System) Stop(ctx context.Context) error {
	err := s.Sim.Close(ctx)
	for _, name := range slices.Sorted(maps.Keys(s.Daemons)) {
		if p := s.Daemons[name]; p.Running() {
			err = errors.Join(err, p.Terminate())
		}
	}
	s.History.Stop()
	return err
}
