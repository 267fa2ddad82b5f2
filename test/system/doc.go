// Package system is Ganglion as a whole on a control plane of package cluster, with
// the nodes of package sim: what deploy/ says is applied, and the daemons run as
// processes of this machine, each with a token of its own service account and so
// with the rights that deploy/ gives it, and no others. Package history watches.
package system
