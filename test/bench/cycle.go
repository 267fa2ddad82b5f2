package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/test/cluster"
	"ganglion.dev/test/history"
	"ganglion.dev/test/sim"
	"ganglion.dev/test/system"
)

// needBy is the key of a need that no detector put there, so that none has to run.
const needBy = protocol.NeedPrefix + "bench"

// rolled is what a rollout took.
type rolled struct {
	wall     time.Duration
	requests []cluster.Request
	events   []history.Event
}

// roll reboots nodes, as many at a time as cap says, and each away for so long.
func (b *bench) roll(nodes, limit, pods int, down time.Duration) (r rolled, err error) {
	binaries := maps.Clone(b.binaries)
	delete(binaries, "detector")
	s, err := system.Start(b.ctx, b.cluster, system.Options{Binaries: binaries, Behavior: sim.Behavior{DownTime: down}})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(b.ctx))) }()
	var names []string
	var specs []sim.NodeSpec
	for i := range nodes {
		names = append(names, fmt.Sprintf("node-%03d", i))
		specs = append(specs, sim.NodeSpec{Name: names[i]})
	}
	if err := s.Sim.AddNodes(b.ctx, specs); err != nil {
		return r, err
	}
	if pods > 0 {
		if err := s.Sim.AddWorkloads(b.ctx, sim.Workload{Name: "app", Replicas: pods * nodes}); err != nil {
			return r, err
		}
	}
	if err := s.SetWindow(b.ctx, "default", func(w *v1alpha1.NodesMaintenanceWindowSpec) {
		w.Serialization.MaxConcurrent = intstr.FromInt(limit)
	}); err != nil {
		return r, err
	}
	if err := pause(b.ctx, 2*time.Second); err != nil { // the DaemonSet's pods, the locker's start
		return r, err
	}
	f := follow(b.ctx, s.History)
	before, err := b.cluster.Requests()
	if err != nil {
		return r, err
	}
	began := time.Now()
	for _, name := range names {
		if _, err := b.cluster.Admin().CoreV1().Nodes().Patch(b.ctx, name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata": {"annotations": {%q: ""}}}`, needBy), metav1.PatchOptions{}); err != nil {
			return r, err
		}
	}
	for _, name := range names {
		at, err := f.until(b.ctx, name, protocol.LockerKey, func(value string, _ bool) bool { return strings.Contains(value, "outcome=rebooted") })
		if err != nil {
			return r, err
		}
		r.wall = max(r.wall, at.Sub(began))
	}
	if err := pause(b.ctx, time.Second); err != nil { // the last slot is freed, the last Events are written
		return r, err
	}
	after, err := b.cluster.Requests()
	if err != nil {
		return r, err
	}
	r.requests, r.events = after[len(before):], s.History.Events()
	violations, _ := history.Check(r.events)
	if len(violations) > 0 {
		return r, fmt.Errorf("a promise was broken: %v", violations[0])
	}
	return r, nil
}

// cycle counts what one node's cycle costs, and how long the steps from one component
// to the next take.
func (b *bench) cycle() error {
	const nodes = 20
	r, err := b.roll(nodes, 1, 1, 500*time.Millisecond)
	if err != nil {
		return err
	}
	kinds := map[string]int{}
	for _, q := range r.requests {
		account, is := strings.CutPrefix(q.User, "system:serviceaccount:ganglion-")
		if !is {
			continue
		}
		_, who, _ := strings.Cut(account, ":")
		kinds[kindOf(who, q)]++
	}
	fmt.Printf("%d nodes with one pod each, one after the other; requests for each node:\n\n| who, what | requests |\n|---|---|\n", nodes)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Printf("| %s | %.1f |\n", kind, float64(kinds[kind])/nodes)
	}
	writes := 0
	for kind, n := range kinds {
		if strings.HasSuffix(kind, "write") {
			writes += n
		}
	}
	fmt.Printf("\nWrites for each node, evictions and Events apart: %.1f\n", float64(writes)/nodes)
	steps(r.events)
	return nil
}

// kindOf sorts a request.
func kindOf(who string, q cluster.Request) string {
	switch {
	case q.Resource == "selfsubjectaccessreviews":
		return who + ", its start"
	case q.Resource == "events":
		return who + ", Event"
	case q.Subresource == "eviction":
		return who + ", eviction"
	case q.Resource == "leases" && q.Name == "locker":
		return who + ", leader election"
	case q.Verb == "get" || q.Verb == "list":
		return who + ", read"
	case q.Verb == "watch":
		return who + ", watch"
	case q.Subresource == "status":
		return who + ", window status"
	}
	return who + ", write"
}

// handOver is a step from one component's write to the next one's.
type handOver struct{ from, to protocol.Phase }

var handOvers = map[handOver]string{
	{protocol.PhaseGranted, protocol.Draining}:       "granted → cordoned",
	{protocol.PhaseDrained, protocol.PhaseReboot}:    "drained → rebooting",
	{protocol.PhaseReboot, protocol.PhaseRebooted}:   "Ready in the new boot → rebooted",
	{protocol.PhaseRebooted, protocol.PhaseRestored}: "rebooted → uncordoned",
	{protocol.PhaseRestored, protocol.Idle}:          "uncordoned → released",
}

// moment is when a node became what it is.
type moment struct {
	phase protocol.Phase
	boot  string
	ready bool
	since time.Time
}

// steps prints how long each hand-over from one component to another took, as the watch
// saw it.
func steps(events []history.Event) {
	took := map[string][]time.Duration{}
	last := map[string]moment{}
	var released time.Time
	for _, e := range events {
		n, is := history.Node(e)
		if !is {
			continue
		}
		was, now := last[n.Name], moment{n.Phase(), n.BootID, n.Ready, e.Seen}
		if was.phase == now.phase && was.boot == now.boot && was.ready == now.ready {
			continue
		}
		last[n.Name] = now
		if name, is := handOvers[handOver{was.phase, now.phase}]; is {
			took[name] = append(took[name], e.Seen.Sub(was.since))
		}
		if was.phase == protocol.PhaseRestored && now.phase == protocol.Idle {
			released = e.Seen
		}
		if now.phase == protocol.PhaseGranted && !released.IsZero() {
			took["released → next granted"] = append(took["released → next granted"], e.Seen.Sub(released))
			released = time.Time{}
		}
	}
	fmt.Printf("\n| step | p50, ms | p99, ms |\n|---|---|---|\n")
	for _, step := range slices.Sorted(maps.Keys(took)) {
		slices.Sort(took[step])
		fmt.Printf("| %s | %s | %s |\n", step, milliseconds(quantile(took[step], 0.5)), milliseconds(quantile(took[step], 0.99)))
	}
}

// rollout compares the wall clock of rollouts with the least that they could take.
func (b *bench) rollout() error {
	const nodes, down = 40, 3 * time.Second
	fmt.Printf("%d nodes that are away for %s each, nothing to drain.\n\n| at a time | wall clock, s | ideal, s | ratio |\n|---|---|---|---|\n", nodes, down)
	for _, limit := range []int{1, 5, 20} {
		r, err := b.roll(nodes, limit, 0, down)
		if err != nil {
			return err
		}
		ideal := time.Duration((nodes+limit-1)/limit) * down
		fmt.Printf("| %d | %.1f | %.1f | %.2f |\n", limit, r.wall.Seconds(), ideal.Seconds(), r.wall.Seconds()/ideal.Seconds())
	}
	return nil
}
