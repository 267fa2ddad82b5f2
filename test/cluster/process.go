package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// terminationGrace is how long a process may take to end on SIGTERM.
const terminationGrace = 10 * time.Second

// Process is a program that runs for a cluster and ends with it at the latest.
// What it prints is appended to its log.
type Process struct {
	cluster *Cluster
	name    string
	path    string
	args    []string
	env     []string
	log     string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// Process starts a program under a name of its own. Of this process's environment it gets
// PATH, HOME and TMPDIR alone; env comes on top.
func (c *Cluster) Process(name, path string, args, env []string) (*Process, error) {
	p := &Process{cluster: c, name: name, path: path, args: args, env: env, log: filepath.Join(c.dir, "logs", name+".log")}
	if err := p.start(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", p.name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = p.cluster.dir
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, set := os.LookupEnv(name); set {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Env = append(cmd.Env, p.env...)
	cmd.Stdout, cmd.Stderr = log, log

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return fmt.Errorf("starting %s: it runs already, as pid %d", p.name, p.cmd.Process.Pid)
	}
	done := make(chan struct{})
	if err := p.cluster.admit(p, func() error { return startTied(cmd) }); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, done
	go func() {
		_ = cmd.Wait() // its outcome is in cmd.ProcessState
		p.cluster.dismiss(p, done)
	}()
	return nil
}

// running holds p.mu.
func (p *Process) running() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Name is the name that it was started under.
func (p *Process) Name() string { return p.name }

// Log is the path of the file with all it has printed, over all its restarts.
func (p *Process) Log() string { return p.log }

// LogTail is the last n lines of its log.
func (p *Process) LogTail(n int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text), n)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (p *Process) current() (*exec.Cmd, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd, p.done
}

// Pid is the process id, of the last run where it has ended.
func (p *Process) Pid() int {
	cmd, _ := p.current()
	return cmd.Process.Pid
}

// Done is closed when the present run has ended.
func (p *Process) Done() <-chan struct{} {
	_, done := p.current()
	return done
}

// Running tells whether it runs; none at all does not.
func (p *Process) Running() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// Wait waits for the end of the present run and gives its state.
func (p *Process) Wait(ctx context.Context) (*os.ProcessState, error) {
	cmd, done := p.current()
	select {
	case <-done:
		return cmd.ProcessState, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %s to end: %w", p.name, ctx.Err())
	}
}

// Signal sends a signal. One that has ended gets none, and that is no error.
func (p *Process) Signal(sig os.Signal) error {
	cmd, _ := p.current()
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// Kill ends it by SIGKILL and waits for its end.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Done()
	return nil
}

// Terminate ends it by SIGTERM. Where that takes more than ten seconds it is killed, which
// is an error.
func (p *Process) Terminate() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(terminationGrace)
	defer timer.Stop()
	select {
	case <-p.Done():
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("terminating %s: still running %s after SIGTERM", p.name, terminationGrace), p.Kill())
	}
}

// Restart kills it where it runs and starts it anew with the same arguments.
func (p *Process) Restart() error {
	if err := p.Kill(); err != nil {
		return err
	}
	return p.start()
}
