package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// Kubectl runs kubectl as the admin and gives what it printed.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, "", args...)
}

// KubectlCommand is how a person calls kubectl on this cluster.
func (c *Cluster) KubectlCommand() string {
	return c.options.Binaries.Kubernetes + " kubectl --kubeconfig=" + c.AdminKubeconfig()
}

func (c *Cluster) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	global := []string{"kubectl", "--kubeconfig=" + c.AdminKubeconfig(), "--cache-dir=" + c.path("kubectl")}
	cmd := exec.CommandContext(ctx, c.options.Binaries.Kubernetes, append(global, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("running kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

var (
	documentBreak = regexp.MustCompile(`(?m)^---\s*$`)
	// foundation are the kinds that others need to be there.
	foundation = regexp.MustCompile(`(?m)^kind: (CustomResourceDefinition|Namespace)\s*$`)
)

// Apply applies a kustomization on the server's side: CRDs and namespaces first,
// and the rest when the CRDs are established. Images stay as they are written.
func (c *Cluster) Apply(ctx context.Context, kustomizeDir string) error {
	rendered, err := c.Kubectl(ctx, "kustomize", kustomizeDir)
	if err != nil {
		return err
	}
	return c.ApplyYAML(ctx, rendered)
}

// ApplyYAML does as Apply with YAML documents.
func (c *Cluster) ApplyYAML(ctx context.Context, documents string) error {
	var first []string
	for _, d := range documentBreak.Split(documents, -1) {
		if foundation.MatchString(d) {
			first = append(first, d)
		}
	}
	if len(first) > 0 {
		text := strings.Join(first, "\n---\n")
		if err := c.apply(ctx, text); err != nil {
			return err
		}
		if strings.Contains(text, "kind: CustomResourceDefinition") {
			if _, err := c.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"); err != nil {
				return err
			}
		}
	}
	return c.apply(ctx, documents)
}

func (c *Cluster) apply(ctx context.Context, documents string) error {
	_, err := c.kubectl(ctx, documents, "apply", "--server-side", "--force-conflicts", "--field-manager=ganglion-test", "-f", "-")
	return err
}
