// Package kube is the thin layer between the protocol and the API server: it
// turns Nodes and Leases into what the rules decide from, writes what they
// decide, and keeps a view in which a daemon's own last writes are visible.
package kube
