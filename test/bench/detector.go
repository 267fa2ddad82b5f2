package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ganglion.dev/shared/protocol"
	"ganglion.dev/test/sim"
	"ganglion.dev/test/system"
)

// detectors is how many are measured: what one does in an hour is too little to see.
const detectors = 20

const sentinelKey = protocol.NeedPrefix + "sentinel"

func (b *bench) detector() (err error) {
	s, err := system.Start(b.ctx, b.cluster, system.Options{Binaries: b.binaries, Idle: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(b.ctx))) }()
	var nodes []string
	var specs []sim.NodeSpec
	for i := range detectors {
		nodes = append(nodes, fmt.Sprintf("node-%02d", i))
		specs = append(specs, sim.NodeSpec{Name: nodes[i]})
	}
	if err := s.Sim.AddNodes(b.ctx, specs); err != nil {
		return err
	}
	if err := s.Sim.Until(b.ctx, "all detectors run", func() bool {
		return !slices.ContainsFunc(nodes, func(n string) bool { p := s.Sim.Detector(n); return p == nil || !p.Running() })
	}); err != nil {
		return err
	}
	if err := b.detectorsIdle(s, nodes); err != nil {
		return err
	}
	f := follow(b.ctx, s.History)
	watch, err := b.watchFloor()
	if err != nil {
		return err
	}
	seen, patch, err := b.detectorsSee(s, f, nodes)
	if err != nil {
		return err
	}
	fmt.Printf("\nFrom the file to the annotation, as a watch of the API sees it, %d times, in ms:\n\n| | p50 | p99 |\n|---|---|---|\n", len(seen))
	for _, row := range []struct {
		name string
		took []time.Duration
	}{{"detector", seen}, {"floor: one PATCH of an annotation", patch}, {"floor: fsnotify alone", watch}} {
		slices.Sort(row.took)
		fmt.Printf("| %s | %s | %s |\n", row.name, milliseconds(quantile(row.took, 0.5)), milliseconds(quantile(row.took, 0.99)))
	}
	fmt.Printf("\np50 of the detector ÷ p50 of one PATCH: %.2f\n", float64(median(seen))/float64(median(patch)))
	var most float64
	for _, node := range nodes {
		m, err := memoryOf(s.Sim.Detector(node).Pid())
		if err != nil {
			return err
		}
		most = max(most, m.most)
	}
	fmt.Printf("Most resident memory that any detector had at work: %.1f MiB\n", most)
	return nil
}

// detectorsIdle watches detectors that have nothing to do.
func (b *bench) detectorsIdle(s *system.System, nodes []string) error {
	pods, err := b.cluster.Admin().CoreV1().Pods(protocol.NodesNamespace).List(b.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodes[0]})
	if err != nil || len(pods.Items) == 0 {
		return errors.Join(err, errors.New("there is no detector's pod"))
	}
	shipped, stop, err := b.inPod(b.ctx, b.binaries["detector"], "detector", &pods.Items[0],
		"--node", nodes[0], "--name", "alone", "--listen", "127.0.0.1:0", "--boot-id-file", "/boot_id")
	if err != nil {
		return err
	}
	defer stop()
	// For some minutes after its start the Go runtime gives memory back, bit by bit.
	if err := pause(b.ctx, b.settle); err != nil {
		return err
	}
	var before []time.Duration
	for _, node := range nodes {
		cpu, err := cpuOf(s.Sim.Detector(node).Pid())
		if err != nil {
			return err
		}
		before = append(before, cpu)
	}
	requests, err := b.detectorRequests()
	if err != nil {
		return err
	}
	if err := pause(b.ctx, b.idle); err != nil {
		return err
	}
	after, err := b.detectorRequests()
	if err != nil {
		return err
	}
	hours := b.idle.Hours() * float64(len(nodes))
	var cpu time.Duration
	for i, node := range nodes {
		pid := s.Sim.Detector(node).Pid()
		now, err := cpuOf(pid)
		if err != nil {
			return err
		}
		cpu += now - before[i]
	}
	m, err := memoryOf(shipped.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Printf("%d detectors, idle for %s, unscraped.\n\n| | |\n|---|---|\n", len(nodes), b.idle)
	fmt.Printf("| resident memory, MiB | %.1f |\n| of it anonymous | %.1f |\n", m.resident, m.anonymous)
	fmt.Printf("| CPU seconds an hour | %.4f |\n", cpu.Seconds()/hours)
	fmt.Printf("| requests an hour, beside one read each `--period` | %.1f |\n", float64(after-requests)/hours)
	return nil
}

func (b *bench) detectorRequests() (int, error) {
	requests, err := b.cluster.Requests()
	n := 0
	for _, r := range requests {
		if r.User == "system:serviceaccount:"+protocol.NodesNamespace+":detector" {
			n++
		}
	}
	return n, err
}

// patchFloor is how long it takes from an annotation's PATCH until a watch has it.
func (b *bench) patchFloor(f *follower, node, value string) (time.Duration, error) {
	began := time.Now()
	if _, err := b.cluster.Admin().CoreV1().Nodes().Patch(b.ctx, node, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata": {"annotations": {"floor": %q}}}`, value), metav1.PatchOptions{}); err != nil {
		return 0, err
	}
	at, err := f.until(b.ctx, node, "floor", func(have string, _ bool) bool { return have == value })
	return at.Sub(began), err
}

// watchFloor is how long it takes from a file until the least program has told of it.
func (b *bench) watchFloor() ([]time.Duration, error) {
	dir, err := os.MkdirTemp("", "ganglion-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	floor := exec.CommandContext(b.ctx, b.binaries["floor"], dir)
	out, err := floor.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := floor.Start(); err != nil {
		return nil, err
	}
	defer func() { _ = floor.Process.Kill(); _ = floor.Wait() }()
	lines := bufio.NewScanner(out)
	lines.Scan()
	if m, err := memoryOf(floor.Process.Pid); err == nil {
		fmt.Printf("| floor: resident memory of fsnotify alone, MiB | %.1f |\n", m.resident)
	}
	var took []time.Duration
	for i := range b.samples {
		began := time.Now()
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644); err != nil {
			return nil, err
		}
		if !lines.Scan() {
			return nil, errors.New("the floor has ended")
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// detectorsSee is how long it takes from a file until a watch has the key, and beside it
// how long one PATCH takes, under the same load. A detector writes once a second at most,
// so several take turns.
func (b *bench) detectorsSee(s *system.System, f *follower, nodes []string) (seen, patch []time.Duration, err error) {
	var (
		mu  sync.Mutex
		all sync.WaitGroup
	)
	each := (b.samples + len(nodes) - 1) / len(nodes)
	for i, node := range nodes {
		all.Go(func() {
			failed := pause(b.ctx, time.Duration(i)*3300*time.Millisecond/time.Duration(len(nodes)))
			for n := 0; n < each && failed == nil; n++ {
				var saw, patched time.Duration
				saw, patched, failed = b.detectorSees(s, f, node, fmt.Sprint(n))
				mu.Lock()
				seen, patch = append(seen, saw), append(patch, patched)
				mu.Unlock()
			}
			mu.Lock()
			err = errors.Join(err, failed)
			mu.Unlock()
		})
	}
	all.Wait()
	return seen, patch, err
}

// detectorSees takes one latency, and one of a PATCH.
func (b *bench) detectorSees(s *system.System, f *follower, node, sample string) (saw, patched time.Duration, err error) {
	const between = 1100 * time.Millisecond
	began := time.Now()
	if err := s.Sim.TouchSentinel(node); err != nil {
		return 0, 0, err
	}
	at, err := f.until(b.ctx, node, sentinelKey, isThere)
	if err != nil {
		return 0, 0, err
	}
	if err := pause(b.ctx, between); err != nil {
		return 0, 0, err
	}
	if err := s.Sim.RemoveSentinel(node); err != nil {
		return 0, 0, err
	}
	if _, err := f.until(b.ctx, node, sentinelKey, isAbsent); err != nil {
		return 0, 0, err
	}
	if err := pause(b.ctx, between); err != nil {
		return 0, 0, err
	}
	if patched, err = b.patchFloor(f, node, sample); err != nil {
		return 0, 0, err
	}
	return at.Sub(began), patched, pause(b.ctx, between)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
