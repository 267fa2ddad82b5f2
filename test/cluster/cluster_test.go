package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// victimEnv makes this test binary start a cluster, say which processes it
// started, and wait to be killed.
const victimEnv = "GANGLION_TEST_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		c, err := Start(context.Background(), Options{Progress: os.Stderr})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(c.Dir())
		for _, p := range c.components {
			fmt.Println(p.Pid())
		}
		os.Stdout.Close()
		select {}
	}
	Main(m, Options{})
}

func TestAdminSeesARealControlPlane(t *testing.T) {
	c := Shared(t)
	ctx := t.Context()
	version, err := c.Admin().Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.Major != "1" || version.Minor == "" || !strings.HasPrefix(version.GitVersion, "v1.") {
		t.Errorf("version %s.%s %s, want the real one of Kubernetes", version.Major, version.Minor, version.GitVersion)
	}
	if _, err := c.Admin().CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	out, err := c.Kubectl(ctx, "get", "namespaces")
	if err != nil || !strings.Contains(out, "kube-system") {
		t.Errorf("kubectl get namespaces: %v\n%s", err, out)
	}
	if err := c.Healthy(); err != nil {
		t.Error(err)
	}
}

func TestRequestsAreCountedByUserAndVerb(t *testing.T) {
	c := Shared(t)
	ctx := t.Context()
	token, err := c.Token(ctx, "default", "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(c.ConfigFor(token))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, "none", metav1.GetOptions{}); err == nil {
			t.Fatal("a service account without any role reads config maps")
		}
	}
	watch, err := c.Admin().CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop() // it has not ended when it is counted
	requests, err := c.Requests()
	if err != nil {
		t.Fatal(err)
	}
	gets, watches := 0, 0
	for _, r := range requests {
		switch {
		case r.User == "system:serviceaccount:default:default" && r.Verb == "get" && r.Resource == "configmaps" && r.Code == 403:
			gets++
		case r.User == AdminUser && r.Verb == "watch" && r.Resource == "configmaps" && r.Namespace == "default":
			watches++
		}
	}
	if gets != 3 || watches != 1 {
		t.Errorf("%d gets and %d watches in the audit log, want 3 and 1", gets, watches)
	}
}

func TestKustomizationWithCRDAndItsResourceIsApplied(t *testing.T) {
	c := Shared(t)
	if err := c.Apply(t.Context(), "testdata/apply"); err != nil {
		t.Fatal(err)
	}
	out, err := c.Kubectl(t.Context(), "get", "-n", "apply-test", "widget,daemonset", "-o", "jsonpath={.items[*].metadata.name} {..image}")
	if want := "first agent ko://ganglion.dev/detector"; err != nil || out != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
}

func TestAPIServerComesBackOnItsPort(t *testing.T) {
	c := Shared(t)
	ctx := t.Context()
	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("the API server answers while it is stopped")
	}
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

func TestTokenOfAPodEndsWithIt(t *testing.T) {
	c := Shared(t)
	ctx := t.Context()
	pods := c.Admin().CoreV1().Pods("default")
	pod, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bound"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "none"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := c.Token(ctx, "default", "default", pod)
	if err != nil {
		t.Fatal(err)
	}
	path, err := c.Kubeconfig("bound", token)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(c.options.Binaries.Kubernetes, "kubectl", "--kubeconfig="+path, "auth", "whoami").CombinedOutput(); err != nil || !strings.Contains(string(out), "system:serviceaccount:default:default") {
		t.Errorf("kubectl auth whoami: %v\n%s", err, out)
	}
	if err := pods.Delete(ctx, "bound", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
}

func TestProcessIsKilledRestartedAndTerminated(t *testing.T) {
	c := Shared(t)
	p, err := c.Process("sleeper", "/bin/sh", []string{"-c", `echo "$GREETING" $$; exec sleep 1000`}, []string{"GREETING=hello"})
	if err != nil {
		t.Fatal(err)
	}
	first := p.Pid()
	if err := p.Kill(); err != nil || p.Running() || alive(first) {
		t.Errorf("after Kill: running %t, err %v", p.Running(), err)
	}
	if err := p.Restart(); err != nil || !p.Running() || p.Pid() == first {
		t.Errorf("after Restart: running %t, pid %d, first %d, err %v", p.Running(), p.Pid(), first, err)
	}
	eventually(t, "it greets", func() bool { return p.LogTail(1) == fmt.Sprintf("hello %d", p.Pid()) })
	if err := p.Terminate(); err != nil {
		t.Error(err)
	}
	state, err := p.Wait(t.Context())
	if err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("ended as %v, %v; want by SIGTERM", state, err)
	}
}

func TestFailedStartShowsTheLogAndLeavesNothing(t *testing.T) {
	c := Shared(t)
	b := c.options.Binaries
	b.Etcd = filepath.Join(t.TempDir(), "etcd")
	if err := os.WriteFile(b.Etcd, []byte("#!/bin/sh\necho no space left; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	_, err := Start(t.Context(), Options{Binaries: b})
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got error %v, want the last words of etcd", err)
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("%d directories left, first %s", len(left), left[0].Name())
	}
}

func TestNothingOutlivesItsStarter(t *testing.T) {
	tests := map[string]func(*exec.Cmd) error{
		"killed":                    func(cmd *exec.Cmd) error { return cmd.Process.Kill() },
		"told to quit, with traces": func(cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGQUIT) },
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir()) // what a killed process leaves
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), victimEnv+"=1")
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(out)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Fields(string(text))
			if len(lines) != 6 {
				t.Fatalf("got %q, want a directory and five pids\n%s", lines, errs.String())
			}
			if err := end(cmd); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			for _, pid := range lines[1:] {
				n, err := strconv.Atoi(pid)
				if err != nil {
					t.Fatal(err)
				}
				eventually(t, "process "+pid+" has ended", func() bool { return !alive(n) })
			}
		})
	}
}

func TestStopLeavesNothing(t *testing.T) {
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.components {
		if alive(p.Pid()) {
			t.Errorf("%s runs still", p.Name())
		}
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	if _, err := c.Process("late", "/bin/true", nil, nil); err == nil {
		t.Error("a process was started after Stop")
	}
}

// alive tells whether a process runs; one that nobody has waited for yet does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("not so after 10 s: %s", what)
		case <-tick.C:
		}
	}
}
