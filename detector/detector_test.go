package main

import (
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ganglion.dev/shared/daemon"
	"ganglion.dev/shared/need"
	"ganglion.dev/shared/protocol"
)

func touch(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path, nil, 0o644))
}

func TestIdleItAsksNothing(t *testing.T) {
	a := newAPI(t)
	h := start(t, a, unprivileged(), "--sentinel", filepath.Join(openDir(t), "s"))
	h.until("it to be ready", func() bool { return strings.HasPrefix(h.scrape("/readyz"), "ok") })
	before := len(a.asked())
	h.never("it asked for something", func() bool { return len(a.asked()) > before })
	// Its rights and its node, once.
	if before != 4 {
		t.Errorf("at its start it asked %q", a.asked())
	}
}

func TestOncePerPeriodItReadsItsNodeAndMendsTheKey(t *testing.T) {
	a, dir := newAPI(t), openDir(t)
	touch(t, filepath.Join(dir, "s"))
	h := start(t, a, unprivileged(), "--sentinel", filepath.Join(dir, "s"), "--period", "1s")
	h.until("the key", a.there)
	a.mu.Lock()
	delete(a.keys, testKey)
	a.mu.Unlock()
	h.until("the key to be there again", a.there)
}

func TestTheNodeObjectIsDeletedAndMadeAgain(t *testing.T) {
	a, dir := newAPI(t), openDir(t)
	touch(t, filepath.Join(dir, "s"))
	h := start(t, a, unprivileged(), "--sentinel", filepath.Join(dir, "s"), "--period", "1s")
	h.until("the key", a.there)
	a.mu.Lock()
	a.gone = true
	clear(a.keys)
	a.mu.Unlock()
	h.until("it to say that there is no such node", func() bool { return strings.Contains(h.scrape("/readyz"), "not found") })
	a.mu.Lock()
	a.gone = false
	a.mu.Unlock()
	h.until("the key on the new node", a.there)
}

func TestSeveralSentinelsAnyOneIsEnough(t *testing.T) {
	a, one, two := newAPI(t), openDir(t), openDir(t)
	h := start(t, a, unprivileged(), "--sentinel", filepath.Join(one, "s"), "--sentinel", filepath.Join(two, "kernel"))
	h.until("it to be ready", h.healthy)
	must(t, os.WriteFile(filepath.Join(one, "s.pkgs"), []byte("libc6\nlibc6\nbash\n"), 0o644))
	touch(t, filepath.Join(one, "s"))
	touch(t, filepath.Join(two, "kernel"))
	h.until("both reasons", func() bool {
		value, _ := a.key()
		need, ours := protocol.ParseNeed(value)
		return ours && need.Reason == "bash,libc6 sentinel kernel"
	})
	must(t, os.Remove(filepath.Join(one, "s")))
	h.until("one reason", func() bool {
		value, _ := a.key()
		need, ours := protocol.ParseNeed(value)
		return ours && need.Reason == "sentinel kernel"
	})
	must(t, os.Remove(filepath.Join(two, "kernel")))
	h.until("no need", func() bool { return !a.there() })
}

func TestAPermissionIsLostAndRegained(t *testing.T) {
	for name, lost := range map[string]func(dir string) string{
		"of the directory":         func(dir string) string { return dir },
		"of the directory above":   filepath.Dir,
		"of the place a link goes": func(dir string) string { return dir + "-target" },
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() == 0 && unprivileged() == nil {
				t.Fatal("root is refused nothing")
			}
			a, top := newAPI(t), openDir(t)
			dir := filepath.Join(top, "above", "dir")
			must(t, os.MkdirAll(dir, 0o755))
			must(t, os.Mkdir(dir+"-target", 0o755))
			sentinel, file := filepath.Join(dir, "s"), filepath.Join(dir, "s")
			if strings.HasSuffix(name, "goes") {
				file = filepath.Join(dir+"-target", "f")
				must(t, os.Symlink(file, sentinel))
			}
			touch(t, file)
			h := start(t, a, unprivileged(), "--sentinel", sentinel)
			h.until("the key", a.there)
			must(t, os.Chmod(lost(dir), 0o000))
			t.Cleanup(func() { _ = os.Chmod(lost(dir), 0o755) })
			h.until("it to say so", func() bool { return !h.healthy() && a.told("SentinelUnreadable", "permission denied") })
			h.never("the key was dropped", func() bool { return !a.there() })
			must(t, os.Chmod(lost(dir), 0o755))
			h.until("it to be well again", h.healthy)
			must(t, os.Remove(file))
			h.until("no need", func() bool { return !a.there() })
		})
	}
}

func TestADirectoryThatCanBeEnteredAndNotListedIsNotWatchedAndSaysSo(t *testing.T) {
	a, dir := newAPI(t), openDir(t)
	must(t, os.Chmod(dir, 0o711))
	h := start(t, a, unprivileged(), "--sentinel", filepath.Join(dir, "s"))
	h.until("it to say so", func() bool { return a.told("SentinelUnreadable", "permission denied") })
	touch(t, filepath.Join(dir, "s"))
	h.until("the key all the same, since the file can be seen", a.there)
}

func TestABindMountOverTheDirectoryIsSeen(t *testing.T) {
	a, dir, over := newAPI(t), openDir(t), openDir(t)
	touch(t, filepath.Join(over, "s"))
	h := start(t, a, namespaced(), "--sentinel", filepath.Join(dir, "s"))
	h.until("it to be ready", h.healthy)
	h.change("bind", over, dir)
	h.until("the sentinel of what was mounted", a.there)
	must(t, os.Remove(filepath.Join(over, "s")))
	h.until("it to be gone", func() bool { return !a.there() })
	touch(t, filepath.Join(over, "s"))
	h.until("it to be there", a.there)
	h.change("umount", dir)
	h.until("what was below", func() bool { return !a.there() })
	touch(t, filepath.Join(dir, "s"))
	h.until("the sentinel below", a.there)
}

func TestAReadOnlyDirectoryIsNoDifferent(t *testing.T) {
	a, dir, real := newAPI(t), openDir(t), openDir(t)
	touch(t, filepath.Join(real, "mounted"))
	h := start(t, a, namespaced(), "--sentinel", filepath.Join(dir, "mounted"), "--sentinel", filepath.Join(dir, "s"))
	h.until("it to be ready", h.healthy)
	h.change("bind", real, dir)
	h.change("read-only", dir)
	h.until("what was mounted to be seen", a.there)
	must(t, os.Remove(filepath.Join(real, "mounted")))
	h.until("no need", func() bool { return !a.there() })
	touch(t, filepath.Join(real, "s"))
	h.until("the sentinel", a.there)
}

func TestATmpfsIsNoDifferent(t *testing.T) {
	a, dir := newAPI(t), openDir(t)
	h := start(t, a, namespaced(), "--sentinel", filepath.Join(dir, "s"))
	h.until("it to be ready", h.healthy)
	h.change("tmpfs", dir)
	h.change("touch", filepath.Join(dir, "s"))
	h.until("the sentinel", a.there)
	h.change("remove", filepath.Join(dir, "s"))
	h.until("no need", func() bool { return !a.there() })
}

func TestAFileSystemThatReportsNothingIsLookedAt(t *testing.T) {
	a := newAPI(t)
	// /proc tells nobody of processes that come and go.
	sleeper := exec.Command("sleep", "1000")
	must(t, sleeper.Start())
	h := start(t, a, unprivileged(), "--sentinel", fmt.Sprintf("/proc/%d", sleeper.Process.Pid))
	h.until("the key", a.there)
	must(t, sleeper.Process.Kill())
	_ = sleeper.Wait()
	h.until("no need", func() bool { return !a.there() })
}

func TestTheInotifyTablesAreFull(t *testing.T) {
	for _, table := range []string{"max_inotify_watches", "max_inotify_instances"} {
		t.Run(table, func(t *testing.T) {
			a, dir := newAPI(t), openDir(t)
			h := start(t, a, namespaced(), "--sentinel", filepath.Join(dir, "s"))
			h.until("it to be ready", h.healthy)
			h.change("limit", table, "0")
			// A directory that is replaced needs another watch.
			must(t, os.Rename(dir, dir+"-old"))
			t.Cleanup(func() { _ = os.RemoveAll(dir + "-old") })
			must(t, os.Mkdir(dir, 0o755))
			if table == "max_inotify_watches" {
				h.until("it to say so", func() bool { return !h.healthy() && a.told("SentinelUnreadable", "no space left on device") })
			}
			touch(t, filepath.Join(dir, "s"))
			h.until("the key all the same, since the file can be seen", a.there)
			must(t, os.Remove(filepath.Join(dir, "s")))
			if table == "max_inotify_watches" {
				h.never("what may come and go unseen passes for not required", func() bool { return !a.there() })
			}
			h.change("limit", table, "100")
			h.until("it to be well again", func() bool { return h.healthy() && !a.there() })
		})
	}
}

func TestTheQueueOfEventsOverflows(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	var most int
	_, err = fmt.Sscan(string(text), &most)
	must(t, err)
	a, dir := newAPI(t), openDir(t)
	h := start(t, a, unprivileged(), "--sentinel", filepath.Join(dir, "s"), "--recheck", "1h")
	h.until("it to be ready", h.healthy)
	must(t, h.process.Process.Signal(syscall.SIGSTOP))
	for i := range most + 100 {
		must(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755))
	}
	touch(t, filepath.Join(dir, "s"))
	must(t, h.process.Process.Signal(syscall.SIGCONT))
	h.until("the key", a.there)
}

func TestTheAPIServerIsAwayWhileTheSentinelComes(t *testing.T) {
	a, dir := newAPI(t), openDir(t)
	h := start(t, a, unprivileged(), "--sentinel", filepath.Join(dir, "s"))
	h.until("it to be ready", h.healthy)
	address := a.Listener.Addr().String()
	a.CloseClientConnections()
	a.Server.Close()
	touch(t, filepath.Join(dir, "s"))
	h.until("the metric, which needs no API server", func() bool {
		return strings.Contains(h.scrape("/metrics"), `ganglion_detector_reboot_required{detector="sentinel",node="n"} 1`)
	})
	must(t, os.Chmod(dir, 0o000))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	h.until("it to see that it cannot tell", func() bool { return !h.healthy() })
	must(t, os.Chmod(dir, 0o755))
	h.until("it to be able to tell", h.healthy)
	listener, err := net.Listen("tcp", address)
	must(t, err)
	a.Server = httptest.NewUnstartedServer(a)
	must(t, a.Listener.Close())
	a.Listener = listener
	a.Start()
	h.until("the key, when the server is back", a.there)
	h.until("the Events of the meantime", func() bool {
		return a.told("SentinelUnreadable", "permission denied") && a.told("RebootRequired", "sentinel s")
	})
}

func TestAnAnswerThatIsLostIsAskedForAgain(t *testing.T) {
	a, dir := newAPI(t), openDir(t)
	a.lost = 1
	h := start(t, a, unprivileged(), "--sentinel", filepath.Join(dir, "s"))
	h.until("it to be ready", h.healthy)
	touch(t, filepath.Join(dir, "s"))
	h.until("it to know that the key is there", func() bool { return a.there() && strings.HasPrefix(h.scrape("/readyz"), "ok") })
	patches := 0
	for _, r := range a.asked() {
		if strings.HasPrefix(r, "PATCH") {
			patches++
		}
	}
	if patches != 1 {
		t.Errorf("%d patches", patches)
	}
}

func TestAMissingRightIsNamedAndAwaited(t *testing.T) {
	a, dir := newAPI(t), openDir(t)
	a.denied = "patch"
	touch(t, filepath.Join(dir, "s"))
	h := start(t, a, unprivileged(), "--sentinel", filepath.Join(dir, "s"))
	h.until("/readyz to name it", func() bool { return strings.Contains(h.scrape("/readyz"), "missing right: patch nodes") })
	a.mu.Lock()
	a.denied = ""
	a.mu.Unlock()
	h.until("the key", a.there)
}

func TestWhereNobodyMayAskForRightsItTries(t *testing.T) {
	a, dir := newAPI(t), openDir(t)
	a.secret = true
	touch(t, filepath.Join(dir, "s"))
	h := start(t, a, unprivileged(), "--sentinel", filepath.Join(dir, "s"))
	h.until("the key", a.there)
}

func TestWhatASentinelSays(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	touch(t, at("file"))
	must(t, os.Mkdir(at("dir"), 0o755))
	must(t, os.Symlink(at("file"), at("link")))
	must(t, os.Symlink("file", at("relative")))
	must(t, os.Symlink(at("none"), at("dangling")))
	must(t, os.Symlink(at("nowhere/none"), at("lost")))
	must(t, os.Symlink(at("circle"), at("circle")))
	must(t, syscall.Mkfifo(at("fifo"), 0o644))
	for name, c := range map[string]struct {
		path string
		want need.Verdict
	}{
		"a file is there":                              {"file", need.Required},
		"a directory under its name counts":            {"dir", need.Required},
		"a named pipe is not opened":                   {"fifo", need.Required},
		"a link to a file":                             {"link", need.Required},
		"a relative link to a file":                    {"relative", need.Required},
		"nothing is there":                             {"none", need.NotRequired},
		"a link to nothing, in a directory to be seen": {"dangling", need.NotRequired},
		"a link into a directory that is not there":    {"lost", need.Unknown},
		"a link to itself":                             {"circle", need.Unknown},
		"no such directory":                            {"nowhere/s", need.Unknown},
		"a file in place of the directory":             {"file/s", need.Unknown},
	} {
		got, err := probe(at(c.path))
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if (err != nil) != (c.want == need.Unknown) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestTheReasonIsBounded(t *testing.T) {
	sentinel := filepath.Join(t.TempDir(), "s")
	if got := reason(sentinel); got != "sentinel s" {
		t.Errorf("without a list: %q", got)
	}
	var packages strings.Builder
	for i := range 25 {
		fmt.Fprintf(&packages, "package-%02d\n", i)
	}
	must(t, os.WriteFile(sentinel+".pkgs", []byte(packages.String()), 0o644))
	if got := reason(sentinel); !strings.HasPrefix(got, "package-00,") || !strings.HasSuffix(got, "package-09 and 15 more") {
		t.Errorf("of 25: %q", got)
	}
	must(t, os.WriteFile(sentinel+".pkgs", []byte("\n\n"), 0o644))
	if got := reason(sentinel); got != "sentinel s" {
		t.Errorf("an empty list: %q", got)
	}
}

func TestEveryBadFlagIsNamed(t *testing.T) {
	o := &options{sentinels: daemon.Strings{Values: []string{"relative"}}, name: "no good", recheck: time.Millisecond, period: -time.Hour}
	text := errors.Join(o.Validate()...).Error()
	for _, flag := range []string{"--node", "--sentinel", "--name", "--recheck", "--period"} {
		if !strings.Contains(text, flag) {
			t.Errorf("%s is not named in:\n%s", flag, text)
		}
	}
}
