package kube

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"ganglion.dev/shared/api/v1alpha1/client"
	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/daemon"
)

// API is what a daemon speaks to its API server with.
type API struct {
	Core     kubernetes.Interface
	Ours     *client.Client
	Recorder record.EventRecorder
}

// Connect returns when the daemon has all the rights that it needs.
func Connect(ctx context.Context, env *daemon.Env, component string, rights ...[]connect.Right) (*API, error) {
	config, err := connect.Config(component, env.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if err := connect.AwaitRights(ctx, env, config, connect.All(rights...)); err != nil {
		return nil, err
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	ours, err := client.New(config)
	if err != nil {
		return nil, err
	}
	return &API{Core: core, Ours: ours, Recorder: NewRecorder(ctx, component, core.CoreV1())}, nil
}
