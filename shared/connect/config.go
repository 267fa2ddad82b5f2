package connect

import (
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"ganglion.dev/shared/daemon"
)

// Config is the client configuration of a daemon: from the kubeconfig file where
// one is named, in-cluster otherwise.
func Config(component, kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the client configuration: %w", err)
	}
	config.UserAgent = fmt.Sprintf("ganglion-%s/%s", component, daemon.Version)
	// A request that gets no answer is given up, and decided anew. Watches have
	// their own time-out.
	config.Timeout = 0
	config.QPS, config.Burst = 100, 200
	return config, nil
}

// RequestTimeout bounds every single request that is not a watch.
const RequestTimeout = 15 * time.Second
