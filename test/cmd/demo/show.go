package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/test/cluster"
	"ganglion.dev/test/history"
	"ganglion.dev/test/system"
)

// show tells what goes on: a line a step, and on a terminal a table below them.
type show struct {
	system  *system.System
	options options
	out     io.Writer
	started time.Time

	shown  int // events that were told
	phases map[string]protocol.Phase
	nodes  map[string]*protocol.Node
	height int // lines of the table that stand on the terminal
}

func newShow(s *system.System, o options, out io.Writer) *show {
	return &show{system: s, options: o, out: out, started: time.Now(), phases: map[string]protocol.Phase{}, nodes: map[string]*protocol.Node{}}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// until tells all that happens until the end. It fails where a component ends, or
// nothing happens any more.
func (s *show) until(ctx context.Context, end func() bool) error {
	patience := 2 * time.Minute
	for {
		changed := s.system.History.Changed()
		s.tell()
		if end() {
			s.clear()
			return nil
		}
		if err := s.system.Cluster.Healthy(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted")
		case <-changed:
		case <-time.After(patience):
			if !s.options.keep {
				return fmt.Errorf("nothing has happened for %s", patience)
			}
		}
	}
}

// done tells whether all nodes have been through.
func (s *show) done() bool {
	if len(s.nodes) < s.options.nodes {
		return false
	}
	for _, n := range s.nodes {
		if n.Phase() != protocol.Idle || n.State.Locker.Step != protocol.Released {
			return false
		}
	}
	leases := map[string]bool{}
	for _, e := range s.system.History.Events() {
		if l, is := history.SlotLease(e); is {
			leases[l.Name] = l.Held()
		}
	}
	for _, held := range leases {
		if held {
			return false
		}
	}
	return true
}

func (s *show) tell() {
	events := s.system.History.After(s.shown)
	s.shown += len(events)
	for _, e := range events {
		o, is := e.Object.(*corev1.Node)
		if !is {
			continue
		}
		n := kube.Node(o)
		if e.Gone {
			delete(s.nodes, n.Name)
			continue
		}
		was := s.nodes[n.Name]
		s.nodes[n.Name] = n
		if was != nil {
			if line := step(was, n); line != "" {
				s.clear()
				fmt.Fprintf(s.out, "%6.1fs  %s\n", e.Seen.Sub(s.started).Seconds(), line)
			}
		}
	}
	s.table()
}

// step says in a line what has become of a node, where that is worth one.
func step(was, is *protocol.Node) string {
	a, b := was.State, is.State
	line := func(who, text string) string { return fmt.Sprintf("%-10s  %-10s  %s", is.Name, who, text) }
	switch {
	case is.Err != nil && was.Err == nil:
		return line("?", is.Err.Error())
	case is.Err != nil:
		return ""
	case a.Locker != b.Locker && b.Locker.Step != "":
		return line("locker", b.Locker.String())
	case a.Drainer != b.Drainer && b.Drainer.Step != "":
		return line("drainer", b.Drainer.String())
	case a.Rebooter != b.Rebooter && b.Rebooter.Step != "":
		return line("dispatcher", b.Rebooter.String())
	case len(a.Needs) == 0 && len(b.Needs) > 0:
		return line("detector", "needs a reboot: "+strings.Join(slices.Sorted(maps.Values(b.Needs)), ", "))
	case was.BootID != is.BootID:
		return line("host", "booted, boot id "+is.BootID)
	case was.Ready != is.Ready && !is.Ready:
		return line("host", "is down")
	case was.Ready != is.Ready:
		return line("host", "is Ready")
	}
	return ""
}

// marks are what the table shows of a phase.
var marks = map[protocol.Phase]string{
	protocol.Idle: "·", protocol.Waiting: "w", protocol.PhaseGranted: "G", protocol.Draining: "D", protocol.PhaseDrained: "d",
	protocol.PhaseReboot: "R", protocol.PhaseRebooted: "b", protocol.PhaseRestored: "r", protocol.PhaseRevoked: "v",
	protocol.PhaseFailed: "F", protocol.Unreadable: "?",
}

// table draws the nodes and how many are in each phase below the lines.
func (s *show) table() {
	if s.options.plain || len(s.nodes) == 0 {
		return
	}
	s.clear()
	counts := map[protocol.Phase]int{}
	var row strings.Builder
	rebooted := 0
	for i, name := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[name]
		counts[n.Phase()]++
		mark := marks[n.Phase()]
		if n.Phase() == protocol.Idle && n.State.Locker.Outcome == protocol.OutcomeRebooted {
			mark = "✓"
			rebooted++
		}
		if i > 0 && i%60 == 0 {
			row.WriteString("\n   ")
		}
		row.WriteString(mark + " ")
	}
	var parts []string
	for _, phase := range protocol.Phases {
		if counts[phase] > 0 && phase != protocol.Idle {
			parts = append(parts, fmt.Sprintf("%s %s %d", marks[phase], phase, counts[phase]))
		}
	}
	text := fmt.Sprintf("\n   %s\n   ✓ rebooted %d of %d   %s\n", row.String(), rebooted, s.options.nodes, strings.Join(parts, "   "))
	fmt.Fprint(s.out, text)
	s.height = strings.Count(text, "\n")
}

// clear takes the table off the terminal.
func (s *show) clear() {
	if s.height > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.height)
		s.height = 0
	}
}

// summary says what it came to, and fails where that is not what was promised.
func (s *show) summary(took time.Duration, requests []cluster.Request, cordoned string) error {
	violations, sum := history.Check(s.system.History.Events())
	once, stillCordoned := 0, 0
	for _, n := range s.nodes {
		if sum.Reboots[n.Name] == 1 && s.system.Sim.Reboots(n.Name) == 1 {
			once++
		}
		if n.Unschedulable {
			stillCordoned++
		}
	}
	fmt.Fprintf(s.out, "\nrebooted        %d of %d, each exactly once: %v, in %s\n", once, s.options.nodes, once == s.options.nodes, took.Round(100*time.Millisecond))
	fmt.Fprintf(s.out, "most at once    %d (maxConcurrent %s)\n", sum.MostUnavailable, s.options.concurrency)
	fmt.Fprintf(s.out, "pods evicted    %d\n", sum.Evicted)
	fmt.Fprintf(s.out, "still cordoned  %d: %s, which was before\n", stillCordoned, cordoned)
	fmt.Fprintf(s.out, "requests to the API server per node, events and leader election apart:\n")
	byUser := map[string]map[string]int{}
	for _, r := range requests {
		name := r.User[strings.LastIndexByte(r.User, ':')+1:]
		ours := strings.HasPrefix(r.User, "system:serviceaccount:"+protocol.SystemNamespace+":") ||
			r.User == "system:serviceaccount:"+protocol.NodesNamespace+":detector"
		if !ours || r.Resource == "events" || r.Resource == "leases" && r.Name == "locker" {
			continue
		}
		if byUser[name] == nil {
			byUser[name] = map[string]int{}
		}
		what := r.Resource
		if r.Subresource != "" {
			what += "/" + r.Subresource
		}
		byUser[name][r.Verb+" "+what]++
	}
	for _, name := range slices.Sorted(maps.Keys(byUser)) {
		total, parts := 0, []string{}
		for _, what := range slices.Sorted(maps.Keys(byUser[name])) {
			n := byUser[name][what]
			total += n
			parts = append(parts, fmt.Sprintf("%s %.1f", what, float64(n)/float64(s.options.nodes)))
		}
		fmt.Fprintf(s.out, "  %-12s %5.1f   %s\n", name, float64(total)/float64(s.options.nodes), strings.Join(parts, ", "))
	}
	var names []string
	for _, i := range history.Invariants {
		names = append(names, string(i))
	}
	fmt.Fprintf(s.out, "checked         %s: %d broken\n", strings.Join(names, ", "), len(violations))
	for _, v := range violations {
		fmt.Fprintln(s.out, "  "+v.String())
	}
	if len(violations) > 0 || once != s.options.nodes || stillCordoned != 1 || !s.nodes[cordoned].Unschedulable {
		return fmt.Errorf("this is not what was promised")
	}
	return nil
}
