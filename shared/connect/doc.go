// Package connect gets a daemon to its API server: its configuration, and whether
// it has the rights that it needs. It links nothing of a clientset, so that the
// detector, which runs on every node, can use it.
package connect
