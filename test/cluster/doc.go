// Package cluster runs a real Kubernetes control plane on this machine for
// tests and demos: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, and kwok in the place of the kubelets. The programs are built
// from Go modules, once per user and version.
//
// It touches the user's cache directory (the programs), a temporary directory
// (all state, certificates and logs), and ports of 127.0.0.1. Every process
// that it starts ends with the one that started it, whatever ends that one.
package cluster
