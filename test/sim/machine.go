package sim

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"ganglion.dev/test/cluster"
)

// machine is the host of a node.
type machine struct {
	sim  *Sim
	spec NodeSpec
	name string
	ctx  context.Context // ends when the machine is taken away
	halt context.CancelFunc
	gone chan struct{} // closed when nothing of it runs any more

	wake     chan struct{} // its kubelet is to look at its pods
	comeBack chan struct{}

	mu       sync.Mutex
	behavior Behavior
	history  []Reboot
	bootID   string
	init     *cluster.Process // stands in for the host's init: its end is the host's
	detector *detector
	runs     map[types.UID]*run // of reboot pods
}

func newMachine(s *Sim, spec NodeSpec) *machine {
	m := &machine{
		sim: s, spec: spec, name: spec.Name, behavior: s.options.Behavior, runs: map[types.UID]*run{},
		gone: make(chan struct{}), wake: make(chan struct{}, 1), comeBack: make(chan struct{}, 1),
	}
	m.ctx, m.halt = context.WithCancel(s.ctx)
	return m
}

// install makes its disk and boots it for the first time.
func (m *machine) install() error {
	if err := os.MkdirAll(m.sim.path(m.name, "sentinel"), 0o755); err != nil {
		return fmt.Errorf("making the node's directory: %w", err)
	}
	return m.boot()
}

func (m *machine) bootIDFile() string { return m.sim.path(m.name, "boot_id") }

// boot begins a new boot: another boot id, another init.
func (m *machine) boot() error {
	id := newBootID()
	if err := os.WriteFile(m.bootIDFile(), []byte(id+"\n"), 0o644); err != nil {
		return fmt.Errorf("writing the boot id: %w", err)
	}
	m.mu.Lock()
	m.bootID = id
	m.mu.Unlock()
	return m.startInit()
}

// startInit starts the stand-in for init. Like systemd it ends on SIGRTMIN+5; unlike it,
// because that is what this signal does by default.
func (m *machine) startInit() error {
	p, err := m.sim.cluster.Process("init-"+m.name, "sleep", []string{"1000000000"}, nil)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.init = p
	m.mu.Unlock()
	return nil
}

// run is the life of the machine: up with a kubelet, down, up again.
func (m *machine) run() {
	defer close(m.gone)
	rebooted := false
	for m.ctx.Err() == nil {
		ctx, cancel := context.WithCancel(m.ctx)
		var kubelet sync.WaitGroup
		kubelet.Go(func() { m.kubelet(ctx, rebooted) })
		m.stayUp()
		cancel()
		kubelet.Wait()
		rebooted = m.goDown()
		if !rebooted {
			return
		}
	}
}

// stayUp returns when the host goes down.
func (m *machine) stayUp() {
	for {
		init := m.hostInit()
		select {
		case <-m.ctx.Done():
			return
		case <-init.Done():
		}
		state, err := init.Wait(m.ctx)
		if err != nil {
			return
		}
		b := m.behaves()
		asked := state.Sys().(syscall.WaitStatus).Signal() == rebootSignal
		if !asked || !b.RebootDoesNothing && !b.RebootHangs {
			return
		}
		if m.startInit() != nil {
			return // the cluster is stopped
		}
		if b.RebootDoesNothing {
			m.terminateRuns()
		}
	}
}

// goDown ends all that runs on the host and, unless it is taken away, brings it up in a new boot.
func (m *machine) goDown() bool {
	m.mu.Lock()
	down := Reboot{Node: m.name, Before: m.bootID, Down: time.Now()}
	for _, r := range m.runs {
		down.Grant, down.Expected = r.grant, r.expected
	}
	m.mu.Unlock()
	m.killAll()
	if m.ctx.Err() != nil {
		return false
	}
	m.mu.Lock()
	m.history = append(m.history, down)
	m.mu.Unlock()
	m.sim.wake(m.name)

	m.reportDown()
	if b := m.behaves(); !b.SentinelSurvives {
		if err := m.sim.RemoveSentinel(m.name); err != nil {
			m.complain(err)
		}
	}
	if !m.stayDown() {
		return false
	}
	if err := m.boot(); err != nil {
		m.complain(err)
		return false
	}
	m.update(func(r *Reboot) { r.After = m.bootID })
	return true
}

// reportDown has the node NotReady, as a kubelet's last word. Where the API server is away,
// nobody hears it.
func (m *machine) reportDown() {
	ctx, cancel := context.WithTimeout(m.ctx, 2*time.Second)
	defer cancel()
	_ = insist(ctx, func(ctx context.Context) error { return m.sim.SetReady(ctx, m.name, false) })
}

// stayDown returns when the host comes up; false where it was taken away.
func (m *machine) stayDown() bool {
	timer := time.NewTimer(m.behaves().downTime())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.ctx.Done():
		return false
	}
	for m.behaves().StaysDown {
		select {
		case <-m.comeBack:
		case <-m.ctx.Done():
			return false
		}
	}
	return true
}

// stop takes the machine away and waits until nothing of it runs.
func (m *machine) stop() {
	m.halt()
	<-m.gone
}

func (m *machine) killAll() {
	m.mu.Lock()
	var processes []*cluster.Process
	if m.init != nil {
		processes = append(processes, m.init)
	}
	if m.detector != nil {
		processes = append(processes, m.detector.process)
	}
	for _, r := range m.runs {
		processes = append(processes, r.process)
	}
	m.detector, m.runs = nil, map[types.UID]*run{}
	m.mu.Unlock()
	for _, p := range processes {
		if err := p.Kill(); err != nil {
			m.complain(err)
		}
	}
}

func (m *machine) terminateRuns() {
	m.mu.Lock()
	runs := slices.Collect(maps.Values(m.runs))
	m.mu.Unlock()
	for _, r := range runs {
		if err := r.process.Terminate(); err != nil {
			m.complain(err)
		}
	}
}

// update changes the last entry of the history.
func (m *machine) update(change func(*Reboot)) {
	m.mu.Lock()
	if n := len(m.history); n > 0 {
		change(&m.history[n-1])
	}
	m.mu.Unlock()
	m.sim.wake(m.name)
}

// Reboots is the history.
func (m *machine) Reboots() []Reboot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.history)
}

// BootID is the id of the present boot.
func (m *machine) BootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bootID
}

func (m *machine) hostInit() *cluster.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.init
}

func (m *machine) behaves() Behavior {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.behavior
}

// complain notes what went wrong in the simulation itself: it is none of the tested system.
func (m *machine) complain(err error) {
	m.sim.complain(fmt.Errorf("simulating node %s: %w", m.name, err))
}
