package cases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ganglion.dev/shared/protocol"
	"ganglion.dev/test/history"
)

const sentinelKey = protocol.NeedPrefix + "sentinel"

// paused has one node and a window that grants nothing, so that only the detector acts.
func paused(t *testing.T) *env {
	t.Helper()
	e := start(t, 1, func(s *spec) { s.Suspended = true })
	return e
}

func (e *env) needed() bool {
	_, is := e.node("node-a").State.Needs[sentinelKey]
	return is
}

func (e *env) untilNeeded(want bool) {
	e.t.Helper()
	what := "the need to be published"
	if !want {
		what = "the need to be taken back"
	}
	e.until(what, func() bool { return e.needed() == want })
}

// restartDetector kills the detector, does something, and waits until another runs.
func (e *env) restartDetector(meanwhile func()) {
	e.t.Helper()
	old := e.Sim.Detector("node-a")
	pid := old.Pid()
	must(e.t, old.Kill())
	meanwhile()
	e.until("another detector", func() bool {
		p := e.Sim.Detector("node-a")
		return p != nil && p.Running() && p.Pid() != pid
	})
}

func TestC24TheSentinelIsASymlink(t *testing.T) {
	e := paused(t)
	sentinel := e.Sim.Sentinel("node-a")
	target := filepath.Join(t.TempDir(), "there")
	must(t, os.WriteFile(target, nil, 0o644))
	must(t, os.Symlink(target, sentinel))
	e.untilNeeded(true)
	must(t, os.Remove(sentinel))
	e.untilNeeded(false)
	must(t, os.Symlink(filepath.Join(t.TempDir(), "later"), sentinel))
	later, err := os.Readlink(sentinel)
	must(t, err)
	e.never("a link to nothing passes for a need", time.Second, e.needed)
	must(t, os.WriteFile(later, nil, 0o644))
	e.untilNeeded(true)
}

func TestC24TheSentinelIsRenamedIntoPlace(t *testing.T) {
	e := paused(t)
	sentinel := e.Sim.Sentinel("node-a")
	must(t, os.WriteFile(sentinel+".new", []byte("reboot"), 0o644))
	must(t, os.Rename(sentinel+".new", sentinel))
	e.untilNeeded(true)
	must(t, os.Rename(sentinel, sentinel+".old"))
	e.untilNeeded(false)
}

func TestC24TheSentinelExistsBeforeTheStart(t *testing.T) {
	e := paused(t)
	e.restartDetector(func() { e.touch("node-a") })
	e.untilNeeded(true)
	e.restartDetector(func() { must(t, e.Sim.RemoveSentinel("node-a")) })
	e.untilNeeded(false)
}

func TestC24TheDirectoryOfTheSentinelIsMissingAtFirstAndReplacedLater(t *testing.T) {
	e := paused(t)
	sentinel := e.Sim.Sentinel("node-a")
	dir := filepath.Dir(sentinel)
	e.restartDetector(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.WriteFile(sentinel, nil, 0o644))
	e.untilNeeded(true)
	must(t, os.Rename(dir, dir+".old"))
	must(t, os.Mkdir(dir, 0o755))
	e.untilNeeded(false)
	must(t, os.WriteFile(sentinel, nil, 0o644))
	e.untilNeeded(true)
}

func TestC25UnreadableIsNotAbsentTheKeyStaysTheMetricAndAnEventSaySo(t *testing.T) {
	e := paused(t)
	e.touch("node-a")
	e.untilNeeded(true)
	dir := filepath.Dir(e.Sim.Sentinel("node-a"))
	must(t, os.Rename(dir, dir+".away"))
	e.untilEvent("node-a", "SentinelUnreadable", "no such file or directory")
	e.until("the metric to say so", func() bool {
		return strings.Contains(e.scrape(e.Sim.Detector("node-a"), "/metrics"), "\nganglion_detector_watch_healthy 0\n")
	})
	if ready := e.scrape(e.Sim.Detector("node-a"), "/readyz"); !strings.Contains(ready, "sentinels") {
		t.Errorf("/readyz says %q", ready)
	}
	e.never("the key was dropped while the sentinel could not be read", 2*time.Second, func() bool { return !e.needed() })
	must(t, os.Rename(dir+".away", dir))
	must(t, e.Sim.RemoveSentinel("node-a"))
	e.untilNeeded(false)
	e.until("the metric to say that all is well", func() bool {
		return strings.Contains(e.scrape(e.Sim.Detector("node-a"), "/metrics"), "\nganglion_detector_watch_healthy 1\n")
	})
}

func TestC26CreatedAndRemovedFiftyTimesInASecondTheEndStateIsRightWithFewWrites(t *testing.T) {
	e := paused(t)
	writes := func() int {
		requests, err := e.Cluster.Requests()
		must(t, err)
		n := 0
		for _, r := range requests {
			if strings.HasSuffix(r.User, ":detector") && r.Verb == "patch" && r.Name == "node-a" {
				n++
			}
		}
		return n
	}
	before := writes()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for range 50 {
		e.touch("node-a")
		<-ticker.C
		must(t, e.Sim.RemoveSentinel("node-a"))
	}
	e.touch("node-a")
	// What was written last may still be what was so in between.
	stable := time.Now()
	e.until("the need to be there for good", func() bool {
		if !e.needed() {
			stable = time.Now()
		}
		return time.Since(stable) > 3*time.Second
	})
	if n := writes() - before; n > 6 {
		t.Errorf("%d writes", n)
	}
}

func TestC27ARestartedDetectorNeverLetsItsKeyDropWhileTheSentinelIsThere(t *testing.T) {
	e := paused(t)
	e.touch("node-a")
	e.untilNeeded(true)
	since := e.node("node-a").State.Needs[sentinelKey]
	for range 3 {
		e.restartDetector(func() {})
	}
	e.never("the key was dropped or rewritten", 2*time.Second, func() bool { return e.node("node-a").State.Needs[sentinelKey] != since })
	there := false
	for _, event := range e.History.Events() {
		if n, is := history.Node(event); is && n.Name == "node-a" {
			_, now := n.State.Needs[sentinelKey]
			if there && !now {
				t.Error("the key was dropped")
			}
			there = now
		}
	}
}

func TestC28TheNeedIsPublishedOutsideEveryWindowToo(t *testing.T) {
	e := start(t, 1, nil)
	must(t, e.Client.Windows().Delete(e.ctx, "default", metav1.DeleteOptions{}))
	e.touch("node-a")
	e.untilNeeded(true)
	e.untilEvent("node-a", "RebootWaiting", "NoWindow")
}

func TestC29AnAdminsOwnKeyByHandWithAnEmptyValueCounts(t *testing.T) {
	e := start(t, 1, nil)
	e.annotate("node-a", protocol.NeedPrefix+"by-hand", "")
	e.untilReleased("node-a", protocol.OutcomeRebooted)
	if needs := e.node("node-a").State.Needs; len(needs) > 0 {
		t.Errorf("needs are left: %v", needs)
	}
}

func TestC29AnotherDetectorsKeySurvivesOurs(t *testing.T) {
	e := paused(t)
	e.annotate("node-a", protocol.NeedPrefix+"kernel", "6.1.0-40")
	e.touch("node-a")
	e.untilNeeded(true)
	must(t, e.Sim.RemoveSentinel("node-a"))
	e.untilNeeded(false)
	if got := e.node("node-a").State.Needs[protocol.NeedPrefix+"kernel"]; got != "6.1.0-40" {
		t.Errorf("the other key is %q", got)
	}
}

func TestThePackagesThatAskForTheRebootAreItsReason(t *testing.T) {
	e := paused(t)
	must(t, e.Sim.TouchSentinel("node-a", "linux-image-amd64", "libc6"))
	e.until("the packages to be named", func() bool {
		need, ours := protocol.ParseNeed(e.node("node-a").State.Needs[sentinelKey])
		return ours && need.BootID == e.Sim.BootID("node-a") && need.Reason == "libc6,linux-image-amd64"
	})
	e.untilEvent("node-a", "RebootRequired", "libc6,linux-image-amd64")
}
