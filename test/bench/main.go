// Command bench measures Ganglion on a real control plane on this machine. What it
// prints depends on the machine and on what else runs there: read the ratios.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"ganglion.dev/test/cluster"
)

// bench is what every measurement works with.
type bench struct {
	ctx      context.Context
	cluster  *cluster.Cluster
	binaries map[string]string // as they ship
	settle   time.Duration
	idle     time.Duration
	samples  int
}

// measurements by name, in their order.
var measurements = []struct {
	name string
	run  func(*bench) error
}{
	{"size", (*bench).size},
	{"detector", (*bench).detector},
	{"cycle", (*bench).cycle},
	{"rollout", (*bench).rollout},
}

func main() {
	var names []string
	for _, m := range measurements {
		names = append(names, m.name)
	}
	only := flag.String("only", strings.Join(names, ","), "what to measure")
	b := &bench{}
	flag.DurationVar(&b.settle, "settle", 4*time.Minute, "how long to let detectors become idle")
	flag.DurationVar(&b.idle, "idle", 4*time.Minute, "how long to watch idle detectors")
	flag.IntVar(&b.samples, "samples", 500, "how many latencies to take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b.ctx = ctx
	if err := b.run(strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(only []string) (err error) {
	dir, err := os.MkdirTemp("", "ganglion-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if b.binaries, err = build(b.ctx, dir); err != nil {
		return err
	}
	for _, m := range measurements {
		if !slices.Contains(only, m.name) {
			continue
		}
		fmt.Printf("\n## %s\n\n", m.name)
		if err := b.fresh(m.run); err != nil {
			return fmt.Errorf("measuring %s: %w", m.name, err)
		}
	}
	return nil
}

// fresh measures on a control plane of its own.
func (b *bench) fresh(measure func(*bench) error) (err error) {
	if b.cluster, err = cluster.Start(b.ctx, cluster.Options{Progress: os.Stderr}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	return measure(b)
}

// koConfig is what ko.yaml says of how binaries are built.
type koConfig struct {
	DefaultFlags []string
	Builds       []struct {
		ID, Dir, Main string
		Flags         []string
	}
}

// build makes the programs as ko does, and the floor.
func build(ctx context.Context, dir string) (map[string]string, error) {
	root, err := cluster.Root()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, "ko.yaml"))
	if err != nil {
		return nil, err
	}
	var config koConfig
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("reading ko.yaml: %w", err)
	}
	paths := map[string]string{"floor": filepath.Join(dir, "floor")}
	if err := goBuild(ctx, root, config.DefaultFlags, paths["floor"], "./test/bench/floor"); err != nil {
		return nil, err
	}
	for _, b := range config.Builds {
		flags := b.Flags
		if len(flags) == 0 {
			flags = config.DefaultFlags
		}
		paths[b.ID] = filepath.Join(dir, b.ID)
		if err := goBuild(ctx, root, flags, paths[b.ID], "./"+filepath.Join(b.Dir, b.Main)); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

func goBuild(ctx context.Context, root string, flags []string, to, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-ldflags=-s -w", "-o", to}, flags...), pkg)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building %s: %w", pkg, err)
	}
	return nil
}

func (b *bench) size() error {
	fmt.Printf("Stripped, %s/%s, %s.\n\n| binary | MB |\n|---|---|\n", runtime.GOOS, runtime.GOARCH, runtime.Version())
	for _, name := range []string{"detector", "locker", "drainer", "dispatcher", "rebooter", "floor"} {
		info, err := os.Stat(b.binaries[name])
		if err != nil {
			return err
		}
		fmt.Printf("| %s | %.2f |\n", name, float64(info.Size())/1e6)
	}
	return nil
}

// quantile of durations that are sorted.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return quantile(d, 0.5)
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }
