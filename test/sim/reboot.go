package sim

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ganglion.dev/test/cluster"
)

const rebooterName = "rebooter"

// run is the container of a reboot pod.
type run struct {
	process         *cluster.Process
	grant, expected string
	began           metav1.Time
	again           bool // in another boot than the one it was first run in
	reported        bool
}

// syncReboot does for the pod of a reboot Job what a kubelet does: it runs the container,
// once, and reports its end. What a reboot has ended is reported in the next boot,
// when the node is Ready.
func (m *machine) syncReboot(ctx context.Context, pod *corev1.Pod, ready bool) error {
	m.mu.Lock()
	r := m.runs[pod.UID]
	m.mu.Unlock()
	switch phase := pod.Status.Phase; {
	case pod.DeletionTimestamp != nil:
		return m.endReboot(ctx, pod, r)
	case phase == corev1.PodSucceeded || phase == corev1.PodFailed:
		return nil
	case r == nil && phase == corev1.PodPending:
		return m.startReboot(ctx, pod, false)
	case r == nil && !ready:
		return nil
	case r == nil && m.behaves().RerunPod:
		return m.startReboot(ctx, pod, true)
	case r == nil:
		return m.reportEnd(ctx, pod, nil, 137, "the host went down")
	case r.process.Running() || r.reported:
		return nil
	}
	code, message, err := r.outcome(ctx)
	if err != nil {
		return err
	}
	if r.again {
		m.update(func(last *Reboot) { last.Rerun = &code })
	}
	if err := m.reportEnd(ctx, pod, r, code, message); err != nil {
		return err
	}
	r.reported = true // read and written by the kubelet alone
	return nil
}

// startReboot runs the container. The pod is Running from then on.
func (m *machine) startReboot(ctx context.Context, pod *corev1.Pod, again bool) error {
	container := pod.Spec.Containers[0]
	env := environment(pod, container)
	path, args := m.command(container, env)
	var pairs []string
	for name, value := range env {
		pairs = append(pairs, name+"="+value)
	}
	name := "reboot-" + pod.Name
	if again {
		name += "-again"
	}
	r := &run{grant: pod.Labels[grantLabel], expected: env["GANGLION_BOOT_ID"], began: metav1.Now(), again: again}
	if !again { // before it runs: a rebooter can be fast, and the pod is reported Running first
		if err := m.reportPod(ctx, pod, map[string]any{
			"phase": corev1.PodRunning, "startTime": r.began, "conditions": readyConditions(corev1.ConditionTrue),
			"containerStatuses": []corev1.ContainerStatus{{
				Name: container.Name, Image: container.Image, Ready: true, Started: new(true),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: r.began}},
			}},
		}); err != nil {
			return err
		}
	}
	m.mu.Lock() // the run is known before its process can do anything
	defer m.mu.Unlock()
	p, err := m.sim.cluster.Process(name, path, args, pairs)
	if err != nil {
		return err
	}
	r.process = p
	m.runs[pod.UID] = r
	m.wakeAtEnd(p)
	return nil
}

// command is what the container runs. One without a command runs its image's
// entrypoint, which is the rebooter; it is told where this host's boot id and init are.
func (m *machine) command(container corev1.Container, env map[string]string) (string, []string) {
	words := slices.Concat(container.Command, container.Args)
	for i := range words {
		words[i] = expand(words[i], env)
	}
	program := rebooterName
	if len(container.Command) > 0 {
		program, words = words[0], words[1:]
	}
	ours := m.sim.options.Binaries[path.Base(program)]
	if ours == "" {
		return program, words
	}
	if path.Base(program) == rebooterName {
		words = append(words, "--boot-id-file", m.bootIDFile(), "--init-pid", strconv.Itoa(m.hostInit().Pid()))
	}
	return ours, words
}

// outcome is how the container ended: its last words where it failed, as with
// terminationMessagePolicy FallbackToLogsOnError.
func (r *run) outcome(ctx context.Context) (int, string, error) {
	state, err := r.process.Wait(ctx)
	if err != nil {
		return 0, "", err
	}
	code := state.ExitCode()
	if ended := state.Sys().(syscall.WaitStatus); ended.Signaled() {
		code = 128 + int(ended.Signal())
	}
	if code == 0 {
		return 0, "", nil
	}
	words := r.process.LogTail(10)
	return code, words[max(0, len(words)-2048):], nil
}

func (m *machine) reportEnd(ctx context.Context, pod *corev1.Pod, r *run, code int, message string) error {
	phase, reason := corev1.PodSucceeded, "Completed"
	if code != 0 {
		phase, reason = corev1.PodFailed, "Error"
	}
	now := metav1.Now()
	ended := &corev1.ContainerStateTerminated{ExitCode: int32(code), Reason: reason, Message: message, FinishedAt: now}
	if r != nil {
		ended.StartedAt = r.began
	}
	container := pod.Spec.Containers[0]
	return m.reportPod(ctx, pod, map[string]any{
		"phase": phase, "conditions": readyConditions(corev1.ConditionFalse),
		"containerStatuses": []corev1.ContainerStatus{{
			Name: container.Name, Image: container.Image, Started: new(false), State: corev1.ContainerState{Terminated: ended},
		}},
	})
}

// endReboot ends the container of a pod that is being deleted, and only then lets
// the pod go.
func (m *machine) endReboot(ctx context.Context, pod *corev1.Pod, r *run) error {
	if r != nil && r.process.Running() {
		if err := r.process.Terminate(); err != nil {
			m.complain(err) // it was killed
		}
	}
	if phase := pod.Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
		code := 143
		if r != nil {
			var err error
			if code, _, err = r.outcome(ctx); err != nil {
				return err
			}
		}
		if err := m.reportEnd(ctx, pod, r, code, "deleted"); err != nil {
			return err
		}
	}
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if err := ignoreNotFound(m.sim.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, now)); err != nil {
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return nil
}

// environment is the container's, with references to earlier variables and to fields of
// the pod resolved. See https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
func environment(pod *corev1.Pod, container corev1.Container) map[string]string {
	fields := map[string]string{
		"spec.nodeName": pod.Spec.NodeName, "metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID),
	}
	env := map[string]string{}
	for _, v := range container.Env {
		value := expand(v.Value, env)
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			value = fields[v.ValueFrom.FieldRef.FieldPath]
		}
		env[v.Name] = value
	}
	return env
}

var reference = regexp.MustCompile(`\$\$|\$\([A-Za-z_][A-Za-z0-9_]*\)`)

// expand replaces $(NAME) where NAME is known, and $$ by $.
func expand(text string, env map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		if ref == "$$" {
			return "$"
		}
		if value, known := env[strings.TrimSuffix(strings.TrimPrefix(ref, "$("), ")")]; known {
			return value
		}
		return ref
	})
}
