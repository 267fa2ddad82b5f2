package cluster

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// tokenSeconds outlasts every test and demo: nobody renews these tokens.
const tokenSeconds = 7 * 24 * 3600

// Token gives a token of a service account, bound to a pod where one is given: then
// it carries the name of the pod's node, and ends with the pod.
func (c *Cluster) Token(ctx context.Context, namespace, serviceAccount string, boundPod *corev1.Pod) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenSeconds))}}
	if boundPod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: boundPod.Name, UID: boundPod.UID}
	}
	made, err := c.admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token of %s/%s: %w", namespace, serviceAccount, err)
	}
	return made.Status.Token, nil
}

// Kubeconfig writes a kubeconfig file, under a name of its own, for whoever has the token.
func (c *Cluster) Kubeconfig(name, token string) (string, error) {
	config := api.NewConfig()
	config.Clusters["ganglion"] = &api.Cluster{Server: c.config.Host, CertificateAuthority: c.config.CAFile}
	config.AuthInfos[name] = &api.AuthInfo{Token: token}
	config.Contexts["ganglion"] = &api.Context{Cluster: "ganglion", AuthInfo: name}
	config.CurrentContext = "ganglion"
	path := c.kubeconfig(name)
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("writing the kubeconfig of %s: %w", name, err)
	}
	return path, nil
}

func (c *Cluster) kubeconfig(name string) string {
	return c.path("kubeconfig", strings.NewReplacer(":", "-", "/", "-").Replace(name))
}

// AdminKubeconfig is the path of the admin's kubeconfig file.
func (c *Cluster) AdminKubeconfig() string { return c.kubeconfig(AdminUser) }

// UserToken is the token of one of the static users, such as SimUser.
func (c *Cluster) UserToken(user string) string { return c.tokens[user] }
