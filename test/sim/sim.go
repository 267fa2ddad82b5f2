package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"ganglion.dev/test/cluster"
)

// byNode is the index of pods by the node they are bound to.
const byNode = "node"

// Options say what runs on the nodes.
type Options struct {
	// Binaries are the programs by name: "detector" and "rebooter". Without a
	// detector none is run, whatever the DaemonSet has.
	Binaries map[string]string
	// DetectorArgs come after the arguments that the simulation gives to each detector.
	DetectorArgs []string
	// DetectorEnv is the further environment of each detector.
	DetectorEnv []string
	// Behavior is what nodes have from their start.
	Behavior Behavior
	// Starts is how many detectors are started at the same time; 0 means 4.
	Starts int
}

// Sim is a set of simulated nodes.
type Sim struct {
	cluster *cluster.Cluster
	options Options
	client  kubernetes.Interface
	dir     string
	starts  chan struct{}

	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	nodes  cache.SharedIndexInformer
	pods   cache.SharedIndexInformer

	mu         sync.Mutex
	machines   map[string]*machine
	workloads  []Workload
	changed    chan struct{} // closed, and made anew, at every change that Until looks at
	running    sync.WaitGroup
	complaints []error
}

// New makes a simulation without nodes. Close ends it.
func New(c *cluster.Cluster, o Options) (*Sim, error) {
	if o.Starts <= 0 {
		o.Starts = 4
	}
	client, err := kubernetes.NewForConfig(c.ConfigFor(c.UserToken(cluster.SimUser)))
	if err != nil {
		return nil, fmt.Errorf("making the simulation's client: %w", err)
	}
	dir, err := os.MkdirTemp(c.Dir(), "nodes-")
	if err != nil {
		return nil, fmt.Errorf("making the simulation's directory: %w", err)
	}
	s := &Sim{
		cluster: c, options: o, client: client, dir: dir, starts: make(chan struct{}, o.Starts),
		machines: map[string]*machine{}, changed: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(client, 0)
	s.nodes = factory.Core().V1().Nodes().Informer()
	s.pods = factory.Core().V1().Pods().Informer()
	err = s.pods.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
		return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
	}})
	if err != nil {
		return nil, fmt.Errorf("indexing pods: %w", err)
	}
	for _, watch := range []struct {
		informer cache.SharedIndexInformer
		node     func(any) string
	}{
		{s.nodes, func(obj any) string { return obj.(*corev1.Node).Name }},
		{s.pods, func(obj any) string { return obj.(*corev1.Pod).Spec.NodeName }},
	} {
		changed := func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			s.wake(watch.node(obj))
		}
		_, err := watch.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: changed,
		})
		if err != nil {
			return nil, fmt.Errorf("watching: %w", err)
		}
	}
	factory.Start(s.ctx.Done())
	if !cache.WaitForCacheSync(s.ctx.Done(), s.nodes.HasSynced, s.pods.HasSynced) {
		return nil, errors.New("waiting for the caches")
	}
	return s, nil
}

// Close stops the machines and deletes what runs on them: the workloads, the
// reboot Jobs, and the nodes with their pods. Namespaces stay.
func (s *Sim) Close(ctx context.Context) error {
	s.mu.Lock()
	names := slices.Collect(maps.Keys(s.machines))
	workloads := s.workloads
	s.mu.Unlock()
	var errs []error
	for _, w := range workloads {
		errs = append(errs, s.deleteWorkload(ctx, w))
	}
	background := metav1.DeletePropagationBackground
	errs = append(errs, s.client.BatchV1().Jobs(nodesNamespace).DeleteCollection(ctx,
		metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{LabelSelector: grantLabel}))
	errs = append(errs, s.each(names, func(name string) error { return s.DeleteNode(ctx, name) }))
	s.cancel()
	s.running.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing the simulation: %w", err)
	}
	return nil
}

// wake has a machine look at its node again.
func (s *Sim) wake(node string) {
	s.mu.Lock()
	m := s.machines[node]
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if m != nil {
		select {
		case m.wake <- struct{}{}:
		default: // it will look already
		}
	}
}

// complain notes what went wrong in the simulation itself.
func (s *Sim) complain(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complaints = append(s.complaints, err)
}

// Complaints are what went wrong in the simulation itself, in order. During an outage
// of the API server there are some; otherwise none are expected.
func (s *Sim) Complaints() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.complaints)
}

func (s *Sim) machine(node string) (*machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[node]
	if m == nil {
		return nil, fmt.Errorf("there is no simulated node %q", node)
	}
	return m, nil
}

// Node is the node as last seen; nil where it is not there. Not to be changed.
func (s *Sim) Node(name string) *corev1.Node {
	obj, found, err := s.nodes.GetStore().GetByKey(name)
	if err != nil || !found {
		return nil
	}
	return obj.(*corev1.Node)
}

// Pods are the pods on a node as last seen. Not to be changed.
func (s *Sim) Pods(node string) []*corev1.Pod {
	objs, _ := s.pods.GetIndexer().ByIndex(byNode, node) // fails only without the index
	pods := make([]*corev1.Pod, len(objs))
	for i := range objs {
		pods[i] = objs[i].(*corev1.Pod)
	}
	return pods
}

// Until waits until a condition holds. It is looked at after every event of nodes
// and pods, after every step of a machine, and every 50 ms for what is neither.
func (s *Sim) Until(ctx context.Context, what string, holds func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if holds() {
			return nil
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		}
	}
}

// insist does a request until it succeeds, as a kubelet does through an outage: not
// where its object is gone.
func insist(ctx context.Context, request func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = request(ctx)
		return last == nil || apierrors.IsNotFound(last) || apierrors.IsInvalid(last), nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return last
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// each does the same for many nodes, some at a time.
func (s *Sim) each(names []string, do func(name string) error) error {
	errs := make([]error, len(names))
	limit := make(chan struct{}, 16)
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			errs[i] = do(name)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (s *Sim) path(node string, elements ...string) string {
	return filepath.Join(append([]string{s.dir, node}, elements...)...)
}
