// Package v1alpha1 is the configuration API of Ganglion: the maintenance windows
// of nodes, and the procedures that reboot them.
//
// The CRDs in deploy/base/crds are generated from these types; their comments are
// what `kubectl explain` prints.
//
// +kubebuilder:object:generate=true
// +groupName=ganglion.dev
package v1alpha1
