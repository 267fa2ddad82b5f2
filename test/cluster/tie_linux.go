package cluster

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

type spawn struct {
	cmd *exec.Cmd
	err chan error
}

// spawner starts processes from one OS thread that never ends: the kernel sends
// a child its parent-death signal when the thread that forked it ends, not the
// process. See PR_SET_PDEATHSIG(2const).
var spawner = sync.OnceValue(func() chan<- spawn {
	spawns := make(chan spawn)
	go func() {
		runtime.LockOSThread()
		for s := range spawns {
			s.err <- s.cmd.Start()
		}
	}()
	return spawns
})

// startTied starts a process that ends when this one does, were it by SIGKILL. It
// has a process group of its own, so that a Ctrl-C at the terminal reaches this
// process alone, which then ends the others in order.
func startTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	s := spawn{cmd: cmd, err: make(chan error, 1)}
	spawner() <- s
	return <-s.err
}
