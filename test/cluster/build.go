package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const toolsDir = "test/tools"

// Binaries are the paths of the programs that make up a control plane.
type Binaries struct {
	Kubernetes string // kube-apiserver, -controller-manager, -scheduler and kubectl: the first argument says which
	Etcd       string
	Kwok       string
}

// tool is one program, built from a module of its own outside of the workspace.
type tool struct {
	name string // of the folder, and of the program
	pkg  string
	of   string // module whose version the program shows
	path func(*Binaries) *string
}

var tools = []tool{
	{"etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", func(b *Binaries) *string { return &b.Etcd }},
	{"kwok", "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok", func(b *Binaries) *string { return &b.Kwok }},
	{"kubernetes", ".", "k8s.io/kubernetes", func(b *Binaries) *string { return &b.Kubernetes }},
}

// Build gives the programs of the control plane. What this user has not built
// before, in this version, is built, which takes minutes; progress then gets a
// line for each program. Processes that build at the same time wait for one another.
func Build(ctx context.Context, progress io.Writer) (Binaries, error) {
	var b Binaries
	root, err := Root()
	if err != nil {
		return b, err
	}
	for _, t := range tools {
		path, err := t.build(ctx, filepath.Join(root, toolsDir, t.name), progress)
		if err != nil {
			return b, err
		}
		*t.path(&b) = path
	}
	return b, nil
}

// BuildTool gives a program of the module test/tools/dev by its package, as Build does.
func BuildTool(ctx context.Context, pkg string, progress io.Writer) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return tool{name: path.Base(pkg), pkg: pkg}.build(ctx, filepath.Join(root, toolsDir, "dev"), progress)
}

func (t tool) build(ctx context.Context, dir string, progress io.Writer) (string, error) {
	path, err := t.cached(ctx, dir, progress)
	if err != nil {
		return "", fmt.Errorf("building %s: %w", t.name, err)
	}
	return path, nil
}

func (t tool) cached(ctx context.Context, dir string, progress io.Writer) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory: %w", err)
	}
	cache = filepath.Join(cache, "ganglion")
	args, hash, version, err := t.inputs(ctx, dir)
	if err != nil {
		return "", err
	}
	built := filepath.Join(cache, t.name+"-"+hash, t.name)
	if _, err := os.Stat(built); err == nil {
		return built, nil
	}
	if err := os.MkdirAll(filepath.Dir(built), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(cache, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(built); err == nil {
		return built, nil // another process has built it meanwhile
	}

	began := time.Now()
	fmt.Fprintf(progress, "building %s %s (only the first time; up to some minutes)\n", t.name, version)
	made := built + ".tmp"
	if _, err := goTool(ctx, dir, append(args, "-o", made, t.pkg)...); err != nil {
		return "", err
	}
	if err := os.Rename(made, built); err != nil {
		return "", err
	}
	fmt.Fprintf(progress, "built %s in %s\n", t.name, time.Since(began).Round(time.Second))
	return built, nil
}

// inputs gives the arguments of the build, and a hash of all that decides its outcome.
func (t tool) inputs(ctx context.Context, dir string) (args []string, hash, version string, err error) {
	sum := sha256.New()
	for _, file := range []string{"go.mod", "go.sum", "main.go"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, os.ErrNotExist) && file == "main.go" {
			continue // the program is another module's package
		}
		if err != nil {
			return nil, "", "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", file, len(text), text)
		if file == "go.mod" && t.of != "" {
			version = requiredVersion(text, t.of)
		}
	}
	toolchain, err := goTool(ctx, dir, "env", "GOVERSION", "GOOS", "GOARCH", "GOEXPERIMENT")
	if err != nil {
		return nil, "", "", err
	}
	args = []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w" + stamp(t.of, version)}
	fmt.Fprintf(sum, "%s %q", toolchain, args)
	return args, fmt.Sprintf("%x", sum.Sum(nil))[:16], version, nil
}

func requiredVersion(gomod []byte, module string) string {
	m := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(gomod)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// stamp sets the version that Kubernetes shows, and compares: a module's build
// knows none.
func stamp(module, version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if module != "k8s.io/kubernetes" || len(parts) < 3 {
		return ""
	}
	var flags strings.Builder
	for _, v := range [][2]string{{"gitVersion", version}, {"gitMajor", parts[0]}, {"gitMinor", parts[1]}, {"gitTreeState", "clean"}} {
		fmt.Fprintf(&flags, " -X k8s.io/component-base/version.%s=%s", v[0], v[1])
	}
	return flags.String()
}

// goTool runs the go command on a module outside of the workspace.
func goTool(ctx context.Context, dir string, args ...string) (string, error) {
	return goCommand(ctx, dir, []string{"GOWORK=off", "CGO_ENABLED=0"}, args...)
}

func goCommand(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("running go %s in %s: %w\n%s", args[0], dir, err, lastLines(errs.String(), 30))
	}
	return strings.TrimSpace(out.String()), nil
}

// lock takes the lock of a file, which its process's end frees in any case.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for the lock of %s: %w", path, ctx.Err())
		case <-tick.C:
		}
	}
}
