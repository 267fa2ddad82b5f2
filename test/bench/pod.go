package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"ganglion.dev/shared/protocol"
)

// inPod runs a program as in a pod of its service account: alone in a root of its own,
// with the files and the environment from which client-go knows that it is in a cluster.
// So it reads no kubeconfig, and touches no code that only that needs.
func (b *bench) inPod(ctx context.Context, program, serviceAccount string, pod *corev1.Pod, args ...string) (*exec.Cmd, func(), error) {
	root, err := os.MkdirTemp("", "ganglion-bench-")
	if err != nil {
		return nil, nil, err
	}
	token, err := b.cluster.Token(ctx, protocol.NodesNamespace, serviceAccount, pod)
	if err != nil {
		return nil, nil, err
	}
	config := b.cluster.AdminConfig()
	ca, err := os.ReadFile(config.CAFile)
	if err != nil {
		return nil, nil, err
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, nil, err
	}
	const account = "var/run/secrets/kubernetes.io/serviceaccount"
	for name, text := range map[string][]byte{
		account + "/token": []byte(token), account + "/ca.crt": ca, account + "/namespace": []byte(protocol.NodesNamespace),
		"program": binary, "boot_id": []byte("00000000-0000-0000-0000-000000000000\n"), "sentinel/other": nil,
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, nil, err
		}
		if err := os.WriteFile(file, text, 0o755); err != nil {
			return nil, nil, err
		}
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, "/program", args...)
	cmd.Dir = "/"
	cmd.Env = []string{"KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port()}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: root, Cloneflags: syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("running %s in a root of its own: %w", filepath.Base(program), err)
	}
	return cmd, func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = os.RemoveAll(root) }, nil
}
