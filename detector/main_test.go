package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asDetector in the environment makes this program the detector.
const asDetector = "GANGLION_TEST_AS_DETECTOR"

// TestMain runs the tests, or, where a test asks for it, the detector as a process of
// its own that does on its host what its standard input says.
func TestMain(m *testing.M) {
	if os.Getenv(asDetector) == "" {
		os.Exit(m.Run())
	}
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			if err := change(strings.Fields(lines.Text())); err != nil {
				fmt.Fprintf(os.Stderr, "changing the host: %s: %v\n", lines.Text(), err)
				os.Exit(99)
			}
			fmt.Println("done")
		}
	}()
	main()
}

// change is what a detector's host does to it, in namespaces of its own.
func change(args []string) error {
	switch args[0] {
	case "bind":
		return syscall.Mount(args[1], args[2], "", syscall.MS_BIND, "")
	case "read-only":
		return syscall.Mount("", args[1], "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	case "tmpfs":
		return syscall.Mount("tmpfs", args[1], "tmpfs", 0, "")
	case "umount":
		return syscall.Unmount(args[1], 0)
	case "touch":
		return os.WriteFile(args[1], nil, 0o644)
	case "remove":
		return os.Remove(args[1])
	case "limit":
		return os.WriteFile("/proc/sys/user/"+args[1], []byte(args[2]), 0)
	}
	return fmt.Errorf("no such change")
}

const testKey = "detector.ganglion.dev/sentinel"

// api stands in for the API server, so that answers can fail or get lost. It has one
// node, and knows annotations of it only.
type api struct {
	*httptest.Server

	mu       sync.Mutex
	gone     bool // there is no such node
	keys     map[string]string
	events   []event
	requests []string
	denied   string // the verb that is not allowed
	secret   bool   // nobody may ask what is allowed
	lost     int    // answers to patches that get lost
}

func newAPI(t *testing.T) *api {
	a := &api{keys: map[string]string{}}
	a.Server = httptest.NewServer(a)
	t.Cleanup(func() { a.Close() })
	return a
}

// ServeHTTP answers as an API server does, as far as a detector asks it.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, r.Method+" "+r.URL.Path)
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case a.secret && strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"no","code":403}`)
		return
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		var review struct {
			Spec struct {
				ResourceAttributes struct{ Verb string }
			}
		}
		_ = json.Unmarshal(body, &review)
		fmt.Fprintf(w, `{"status":{"allowed":%t}}`, review.Spec.ResourceAttributes.Verb != a.denied)
		return
	case strings.HasSuffix(r.URL.Path, "/events"):
		var e event
		_ = json.Unmarshal(body, &e)
		a.events = append(a.events, e)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{}`)
		return
	case a.gone:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"nodes \"n\" not found","code":404}`)
		return
	case r.Method == http.MethodPatch:
		var patch struct {
			Metadata struct{ Annotations map[string]*string }
		}
		_ = json.Unmarshal(body, &patch)
		for key, value := range patch.Metadata.Annotations {
			if delete(a.keys, key); value != nil {
				a.keys[key] = *value
			}
		}
		if a.lost > 0 {
			a.lost--
			panic(http.ErrAbortHandler)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"uid": "u", "annotations": a.keys}})
}

func (a *api) key() (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	value, there := a.keys[testKey]
	return value, there
}

func (a *api) there() bool {
	_, there := a.key()
	return there
}

// asked is what was asked for so far.
func (a *api) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

func (a *api) told(reason, message string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.events, func(e event) bool {
		return e.Reason == reason && strings.Contains(e.Message, message) && e.InvolvedObject.UID == "u"
	})
}

// host is a detector that runs.
type host struct {
	t       *testing.T
	api     *api
	process *exec.Cmd
	stdin   io.WriteCloser
	answers *bufio.Scanner
	logs    *logs
}

// logs is what a detector says.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is all of it.
func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// unprivileged is how the detector runs in a cluster.
func unprivileged() *syscall.SysProcAttr {
	if os.Getuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
}

// namespaced is a detector whose host can be changed without any right over this one.
func namespaced() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
}

// start runs a detector until the end of the test.
func start(t *testing.T, a *api, how *syscall.SysProcAttr, args ...string) *host {
	t.Helper()
	dir := openDir(t)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q}}],
		"users": [{"name": "u", "user": {"token": "t"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}`, a.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The directory that go test builds into is nobody else's.
	copied := filepath.Join(dir, "detector")
	binary, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, api: a, logs: &logs{}}
	h.process = exec.Command(copied, append([]string{
		"--kubeconfig", kubeconfig, "--node", "n", "--listen", "127.0.0.1:0", "--log-format", "console", "--recheck", "1s"}, args...)...)
	h.process.Env = []string{asDetector + "=1"}
	h.process.SysProcAttr = how
	h.process.Dir = dir
	h.process.Stderr = h.logs
	if h.stdin, err = h.process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := h.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.answers = bufio.NewScanner(stdout)
	if err := h.process.Start(); err != nil {
		if how != nil && how.Cloneflags != 0 {
			t.Skipf("this machine gives no namespaces to play with: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.process.Process.Signal(syscall.SIGTERM)
		_ = h.process.Wait()
		if code := h.process.ProcessState.ExitCode(); code != 0 || t.Failed() {
			t.Errorf("exit code %d; the detector said:\n%s", code, h.logs)
		}
	})
	return h
}

// openDir is a directory that everybody may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ganglion-detector-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// change changes the detector's host, and returns when that is done.
func (h *host) change(words ...string) {
	h.t.Helper()
	fmt.Fprintln(h.stdin, strings.Join(words, " "))
	if !h.answers.Scan() {
		h.t.Fatalf("changing the host: %v; the detector said:\n%s", words, h.logs)
	}
}

// scrape asks the detector's own port.
func (h *host) scrape(path string) string {
	const marker = "listening\t"
	text := h.logs.String()
	i := strings.Index(text, marker)
	if i < 0 {
		return ""
	}
	var where struct{ Address string }
	line, _, _ := strings.Cut(text[i+len(marker):], "\n")
	if err := json.Unmarshal([]byte(line), &where); err != nil {
		return ""
	}
	answer, err := http.Get("http://" + where.Address + path)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}

func (h *host) healthy() bool {
	return strings.Contains(h.scrape("/metrics"), "\nganglion_detector_watch_healthy 1\n")
}

func (h *host) until(what string, holds func() bool) {
	h.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			h.t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// never holds is watched for as long as a few looks take.
func (h *host) never(what string, holds func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(2500 * time.Millisecond); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			h.t.Fatal(what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
