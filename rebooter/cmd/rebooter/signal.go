package main

import (
	"fmt"
	"syscall"
)

// sigRTMIN is the first real-time signal as the C library counts them: the kernel
// starts at 32 and the C library keeps the first two for itself.
const sigRTMIN = 34

// signalInit asks the host's init for an orderly reboot. Systemd starts
// reboot.target on SIGRTMIN+5; see "Signals" in systemd(1).
func signalInit(pid int) error {
	if err := syscall.Kill(pid, syscall.Signal(sigRTMIN+5)); err != nil {
		return fmt.Errorf("sending SIGRTMIN+5 to pid %d: %w", pid, err)
	}
	return nil
}
