package sim

import (
	"context"
	"time"
)

// Behavior is how the host of a node behaves. The zero value is a host that is
// away for 300 ms and comes back Ready, without its sentinel.
type Behavior struct {
	// DownTime is how long a reboot takes; 0 means 300 ms, less than 0 none at all.
	DownTime time.Duration
	// StaysDown keeps the host down until [Sim.Return].
	StaysDown bool
	// NotReadyFor is how long the node is NotReady in its new boot.
	NotReadyFor time.Duration
	// SentinelSurvives keeps the sentinel over a reboot.
	SentinelSurvives bool
	// RebootDoesNothing has the host stay up where it is told to reboot: it ends the
	// rebooter as a shutdown would, so the pod succeeds, and that is all.
	RebootDoesNothing bool
	// RebootHangs has the host stay up and do nothing at all: the rebooter waits
	// until it gives up.
	RebootHangs bool
	// RerunPod runs the container of the reboot pod again in the new boot, with the same
	// environment, before the pod is reported: see [Reboot.Rerun].
	RerunPod bool
}

func (b Behavior) downTime() time.Duration {
	if b.DownTime == 0 {
		return 300 * time.Millisecond
	}
	return max(b.DownTime, 0)
}

// Reboot is one time that a host went down.
type Reboot struct {
	Node     string
	Grant    string // of the pod that ran; empty where there was none
	Expected string // the boot id that this pod was made for
	Before   string // the boot id in which it went down
	After    string // the one in which it came up; empty while it is down
	Down     time.Time
	Up       time.Time // when it was Ready again; zero until then
	Rerun    *int      // exit code of the container that was run again, with RerunPod
}

// SetBehavior changes how a node's host behaves from now on.
func (s *Sim) SetBehavior(node string, change func(*Behavior)) error {
	m, err := s.machine(node)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.behavior)
	return nil
}

// Reboots is how many times a node's host went down; -1 where there is no such node.
func (s *Sim) Reboots(node string) int {
	m, err := s.machine(node)
	if err != nil {
		return -1
	}
	return len(m.Reboots())
}

// History is every time that a node's host went down, in order.
func (s *Sim) History(node string) []Reboot {
	m, err := s.machine(node)
	if err != nil {
		return nil
	}
	return m.Reboots()
}

// BootID is the boot id of a node's host, as in its boot_id file.
func (s *Sim) BootID(node string) string {
	m, err := s.machine(node)
	if err != nil {
		return ""
	}
	return m.BootID()
}

// Down tells whether a node's host is down.
func (s *Sim) Down(node string) bool {
	reboots := s.History(node)
	return len(reboots) > 0 && reboots[len(reboots)-1].After == ""
}

// Return brings a host back that StaysDown; one that is up, or that goes down later,
// does not stay down any more.
func (s *Sim) Return(node string) error {
	m, err := s.machine(node)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.behavior.StaysDown = false
	m.mu.Unlock()
	select {
	case m.comeBack <- struct{}{}:
	default:
	}
	return nil
}

// Crash takes a host down without being asked, as a power failure: it comes back in
// another boot. It returns when the host is down.
func (s *Sim) Crash(ctx context.Context, node string) error {
	m, err := s.machine(node)
	if err != nil {
		return err
	}
	before := len(m.Reboots())
	if err := m.hostInit().Kill(); err != nil {
		return err
	}
	return s.Until(ctx, "host "+node+" is down", func() bool { return len(m.Reboots()) > before })
}
