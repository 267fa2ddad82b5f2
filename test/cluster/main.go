package cluster

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
)

// shared is the one cluster of a test package.
var shared struct {
	mu      sync.Mutex
	ctx     context.Context // ends when Main is interrupted; nil without Main
	options Options
	cluster *Cluster
	err     error
}

// Main runs the tests of a package that share one cluster, and stops it when they are
// done, or interrupted:
//
//	func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{}) }
func Main(m *testing.M, o Options) {
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	shared.ctx, shared.options = ctx, o
	go func() {
		<-ctx.Done()
		stopShared()
		os.Exit(130)
	}()
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Shared is the package's cluster; the first test that asks for it starts it.
func Shared(tb testing.TB) *Cluster {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.ctx == nil {
		tb.Fatal("cluster.Shared: TestMain has to call cluster.Main, which stops it")
	}
	if shared.cluster == nil && shared.err == nil {
		shared.cluster, shared.err = Start(shared.ctx, shared.options)
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.cluster
}

func stopShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		return nil
	}
	return shared.cluster.Stop()
}
