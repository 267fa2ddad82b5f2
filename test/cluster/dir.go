package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const dirPrefix = "ganglion-"

// newDir makes the directory of a cluster. The lock in it says that its process
// lives; release frees it.
func newDir(ctx context.Context) (dir string, release func(), err error) {
	sweep()
	dir, err = os.MkdirTemp("", dirPrefix)
	if err != nil {
		return "", nil, fmt.Errorf("making the cluster's directory: %w", err)
	}
	release, err = lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", nil, err
	}
	for _, sub := range []string{"logs", "pki", "kubeconfig"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return "", nil, err
		}
	}
	return dir, release, nil
}

// sweep removes directories of clusters whose process was killed. Those younger than a
// minute may not be locked yet.
func sweep() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*", "lock"))
	for _, path := range locks {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		info, err := f.Stat()
		if err == nil && time.Since(info.ModTime()) > time.Minute && syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.RemoveAll(filepath.Dir(path))
		}
		f.Close()
	}
}

// freePorts finds ports of 127.0.0.1 that nobody listens on. They lie below the range
// that the kernel takes clients' ports from, lest one of those gets hold of
// the API server's port while that is down.
func freePorts(n int) ([]int, error) {
	const lowest, highest = 15000, 32000
	var ports []int
	for range 1000 {
		port := lowest + rand.IntN(highest-lowest)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("finding free ports: %d of %d found between %d and %d", len(ports), n, lowest, highest)
}
