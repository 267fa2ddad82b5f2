package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/test/cluster"
	"ganglion.dev/test/sim"
	"ganglion.dev/test/system"
)

type options struct {
	nodes       int
	concurrency string
	down        time.Duration
	keep        bool
	plain       bool
}

func main() {
	var o options
	flag.IntVar(&o.nodes, "nodes", 12, "how many nodes")
	flag.StringVar(&o.concurrency, "concurrency", "2", "how many at a time: a count, or a percentage")
	flag.DurationVar(&o.down, "down", time.Second, "how long a reboot takes")
	flag.BoolVar(&o.keep, "keep", false, "leave it up until Ctrl-C, to play with")
	flag.BoolVar(&o.plain, "plain", !isTerminal(os.Stdout), "plain lines, no table that is redrawn")
	flag.Parse()
	if err := o.validate(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func (o options) validate() error {
	var errs []error
	if o.nodes < 1 || o.nodes > 500 {
		errs = append(errs, fmt.Errorf("-nodes %d: want 1 to 500", o.nodes))
	}
	if o.down <= 0 {
		errs = append(errs, fmt.Errorf("-down %s: want more than 0", o.down))
	}
	w := v1alpha1.NodesMaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
	w.Spec.Serialization.MaxConcurrent = intstr.Parse(o.concurrency)
	w.Default()
	if problems := w.Validate(); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("-concurrency %s: want a count, or 1%% to 100%%", o.concurrency))
	}
	return errors.Join(errs...)
}

func nodeName(i int) string { return fmt.Sprintf("node-%02d", i+1) }

func run(ctx context.Context, o options, out io.Writer) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{Progress: out})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	fmt.Fprintln(out, "control plane is up; building and starting Ganglion")
	binaries, err := c.BuildDaemons(ctx, false)
	if err != nil {
		return err
	}
	s, err := system.Start(ctx, c, system.Options{Binaries: binaries, Behavior: sim.Behavior{DownTime: o.down}})
	if err != nil {
		return err
	}
	defer func() {
		closing, done := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer done()
		if stopErr := s.Stop(closing); stopErr != nil && ctx.Err() == nil {
			err = errors.Join(err, stopErr)
		}
	}()
	cordoned, err := prepare(ctx, s, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d nodes in 3 zones, %d workloads with budgets, node %s cordoned by hand\n", o.nodes, len(workloads(o)), cordoned)
	if o.keep {
		fmt.Fprintf(out, "to look at it from another terminal:\n  alias k='%s'; k get nmw; k get nodes; k get events -A -w\n", c.KubectlCommand())
	}
	requests, err := c.Requests()
	if err != nil {
		return err
	}
	show := newShow(s, o, out)
	touched := time.Now()
	for i := range o.nodes {
		if err := s.Sim.TouchSentinel(nodeName(i), "linux-image-amd64", "libc6"); err != nil {
			return err
		}
	}
	if err := show.until(ctx, func() bool { return show.done() }); err != nil {
		return err
	}
	after, err := c.Requests()
	if err != nil {
		return err
	}
	if err := show.summary(time.Since(touched), after[len(requests):], cordoned); err != nil {
		return err
	}
	if o.keep {
		fmt.Fprintf(out, "\nit stays up until Ctrl-C. To have a node rebooted: touch %s\nkubeconfig: %s\n", s.Sim.Sentinel(nodeName(0)), c.AdminKubeconfig())
		err := show.until(ctx, func() bool { return false })
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return nil
}

// workloads are spread over the nodes, and budgets keep them up.
func workloads(o options) []sim.Workload {
	return []sim.Workload{
		{Name: "web", Replicas: o.nodes, MaxUnavailable: "34%"},
		{Name: "api", Replicas: 3, MinAvailable: "2", Zones: true},
		{Name: "cache", Replicas: 2, MaxUnavailable: "1"},
	}
}

// prepare makes nodes, workloads and the window, and cordons one node by hand.
func prepare(ctx context.Context, s *system.System, o options) (string, error) {
	if err := s.SetWindow(ctx, "default", func(spec *v1alpha1.NodesMaintenanceWindowSpec) {
		spec.Serialization.MaxConcurrent = intstr.Parse(o.concurrency)
	}); err != nil {
		return "", err
	}
	var specs []sim.NodeSpec
	for i := range o.nodes {
		specs = append(specs, sim.NodeSpec{Name: nodeName(i), Zone: fmt.Sprintf("zone-%c", 'a'+i%3)})
	}
	if err := s.Sim.AddNodes(ctx, specs); err != nil {
		return "", err
	}
	if err := s.Sim.AddWorkloads(ctx, workloads(o)...); err != nil {
		return "", err
	}
	name := nodeName(o.nodes / 2)
	_, err := s.Cluster.Admin().CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	if err != nil {
		return "", fmt.Errorf("cordoning node %s by hand: %w", name, err)
	}
	return name, s.Sim.Until(ctx, "a detector on every node", func() bool {
		for i := range o.nodes {
			if p := s.Sim.Detector(nodeName(i)); p == nil || !p.Running() {
				return false
			}
		}
		return true
	})
}
