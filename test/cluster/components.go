package cluster

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// AdminUser is the name of the admin in the audit log, SimUser that of package sim.
const (
	AdminUser = "admin"
	SimUser   = "sim"
)

const systemMasters = "system:masters"

// users are who may speak to the API server by a static token, with their groups.
var users = map[string]string{
	AdminUser:                        systemMasters,
	SimUser:                          systemMasters,
	"kwok":                           systemMasters,
	"system:kube-controller-manager": "",
	"system:kube-scheduler":          "",
}

//go:embed config/audit.yaml
var auditPolicy []byte

//go:embed config/kwok.yaml
var kwokConfig []byte

// prepare writes everything that the components read at their start.
func (c *Cluster) prepare() error {
	if err := writePKI(c.path("pki")); err != nil {
		return err
	}
	var tokens strings.Builder
	c.tokens = map[string]string{}
	for user, group := range users {
		c.tokens[user] = rand.Text()
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", c.tokens[user], user, user, group)
	}
	for name, text := range map[string][]byte{"tokens.csv": []byte(tokens.String()), "audit.yaml": auditPolicy, "kwok.yaml": kwokConfig} {
		if err := os.WriteFile(c.path(name), text, 0o600); err != nil {
			return err
		}
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	c.port, c.etcdPort, c.etcdPeerPort = ports[0], ports[1], ports[2]
	c.config = &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", c.port), BearerToken: c.tokens[AdminUser],
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.path("pki", "ca.crt")}, QPS: -1,
	}
	if c.admin, err = kubernetes.NewForConfig(c.config); err != nil {
		return fmt.Errorf("making the admin's client: %w", err)
	}
	for user, token := range c.tokens {
		if _, err := c.Kubeconfig(user, token); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

// startComponents starts components of the control plane.
func (c *Cluster) startComponents(names ...string) error {
	for _, name := range names {
		path, args := c.component(name)
		p, err := c.Process(name, path, args, nil)
		if err != nil {
			return err
		}
		c.components = append(c.components, p)
		if name == "kube-apiserver" {
			c.apiServer = p
		}
	}
	return nil
}

// component is the command line of a component. What is not said here is its default.
func (c *Cluster) component(name string) (path string, args []string) {
	b := c.options.Binaries
	etcd := fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort)
	switch name {
	case "etcd":
		peer := fmt.Sprintf("http://127.0.0.1:%d", c.etcdPeerPort)
		return b.Etcd, []string{
			"--data-dir=" + c.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls=" + etcd, "--advertise-client-urls=" + etcd,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		}
	case "kube-apiserver":
		return b.Kubernetes, []string{
			name, "--etcd-servers=" + etcd,
			"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.port),
			"--endpoint-reconciler-type=none", // refuses the loopback address
			"--tls-cert-file=" + c.path("pki", "apiserver.crt"), "--tls-private-key-file=" + c.path("pki", "apiserver.key"),
			"--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16",
			"--service-account-key-file=" + c.path("pki", "sa.pub"), "--service-account-signing-key-file=" + c.path("pki", "sa.key"),
			"--token-auth-file=" + c.path("tokens.csv"), "--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction", "--allow-privileged=true", "--profiling=false",
			"--audit-policy-file=" + c.path("audit.yaml"), "--audit-log-path=" + c.path("audit.log"), "--audit-log-maxsize=0",
		}
	case "kube-controller-manager":
		user := c.kubeconfig("system:" + name)
		return b.Kubernetes, []string{
			name, "--kubeconfig=" + user, "--authentication-kubeconfig=" + user, "--authorization-kubeconfig=" + user,
			"--secure-port=0", "--leader-elect=false", "--use-service-account-credentials=true", "--profiling=false",
			"--service-account-private-key-file=" + c.path("pki", "sa.key"), "--root-ca-file=" + c.path("pki", "ca.crt"),
			"--kube-api-qps=500", "--kube-api-burst=1000",
			// Simulated nodes send no heartbeats: they are NotReady when package sim
			// says so, which is acted upon at once.
			"--node-monitor-grace-period=24h", "--node-monitor-period=1s",
		}
	case "kube-scheduler":
		user := c.kubeconfig("system:" + name)
		return b.Kubernetes, []string{
			name, "--kubeconfig=" + user, "--authentication-kubeconfig=" + user, "--authorization-kubeconfig=" + user,
			"--secure-port=0", "--leader-elect=false", "--profiling=false", "--kube-api-qps=500", "--kube-api-burst=1000",
		}
	case "kwok":
		return b.Kwok, []string{
			"--kubeconfig=" + c.kubeconfig(name), "--config=kwok.yaml", // in its working directory: it splits at commas
			"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--node-lease-duration-seconds=0",
		}
	}
	panic("no component " + name)
}

func (c *Cluster) apiServerReady(ctx context.Context) error {
	_, err := c.admin.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err
}

func (c *Cluster) controllersReady(ctx context.Context) error {
	_, err := c.admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}

// StopAPIServer kills the API server: an outage, until StartAPIServer.
func (c *Cluster) StopAPIServer() error { return c.apiServer.Kill() }

// StartAPIServer starts the API server anew, on its port, and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.apiServer.Restart(); err != nil {
		return err
	}
	return c.waitFor(ctx, "the API server to be ready again", c.apiServerReady)
}

// Component is a process of the control plane, by name, such as kube-scheduler; nil where
// there is none of that name.
func (c *Cluster) Component(name string) *Process {
	for _, p := range c.components {
		if p.Name() == name {
			return p
		}
	}
	return nil
}
