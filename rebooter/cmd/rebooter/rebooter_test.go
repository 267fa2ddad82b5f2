package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func bootIDFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// host is a process that stands in for the host's init.
func host(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func TestInTheExpectedBootInitGetsSIGRTMINPlus5(t *testing.T) {
	init := host(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_ = init.Wait()
		cancel() // the shutdown ends the pods
	}()
	begun, err := reboot(ctx, options{method: "signal", bootID: "b1", bootIDFile: bootIDFile(t, "b1\n"), initPID: init.Process.Pid, timeout: time.Minute})
	if !begun || err != nil {
		t.Errorf("begun %t, %v", begun, err)
	}
	if got := init.ProcessState.Sys().(syscall.WaitStatus).Signal(); got != syscall.Signal(39) {
		t.Errorf("init got signal %d", got)
	}
}

func TestC37InAnotherBootNothingHappens(t *testing.T) {
	init := host(t)
	begun, err := reboot(t.Context(), options{method: "signal", bootID: "b1", bootIDFile: bootIDFile(t, "b2\n"), initPID: init.Process.Pid, timeout: time.Minute})
	if begun || err != nil {
		t.Errorf("begun %t, %v", begun, err)
	}
	if err := init.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("init: %v", err)
	}
}

func TestWhereTheBootIsNotKnownNothingHappens(t *testing.T) {
	for name, file := range map[string]string{"an empty file": bootIDFile(t, "\n"), "no file": filepath.Join(t.TempDir(), "none")} {
		init := host(t)
		begun, err := reboot(t.Context(), options{method: "signal", bootID: "b1", bootIDFile: file, initPID: init.Process.Pid, timeout: time.Minute})
		if begun || err == nil {
			t.Errorf("%s: begun %t, %v", name, begun, err)
		}
		if err := init.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("%s: init: %v", name, err)
		}
	}
}

func TestAHostThatStaysUpIsAnError(t *testing.T) {
	init := exec.Command("sh", "-c", "trap '' 39; echo ready; exec sleep 1000")
	out, err := init.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := init.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = init.Process.Kill(); _ = init.Wait() })
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	_, err = reboot(t.Context(), options{method: "signal", bootID: "b1", bootIDFile: bootIDFile(t, "b1"), initPID: init.Process.Pid, timeout: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "still up") {
		t.Errorf("%v", err)
	}
}

func TestAnInitThatMayNotBeSignalledIsAnError(t *testing.T) {
	_, err := reboot(t.Context(), options{method: "signal", bootID: "b1", bootIDFile: bootIDFile(t, "b1"), initPID: 1 << 29, timeout: time.Minute})
	if !errors.Is(err, syscall.ESRCH) {
		t.Errorf("%v", err)
	}
}

func TestEveryBadFlagIsNamed(t *testing.T) {
	o := options{method: "magic", initPID: 0, timeout: -1}
	o.Level, o.Format = "loud", "xml"
	text := errors.Join(o.validate()...).Error()
	for _, flag := range []string{"--method", "--boot-id", "--init-pid", "--timeout", "--log-level", "--log-format"} {
		if !strings.Contains(text, flag) {
			t.Errorf("%s is not named in:\n%s", flag, text)
		}
	}
}
