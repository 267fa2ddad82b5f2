// Package sim simulates nodes on a [cluster.Cluster], each with a sentinel
// directory, a boot id, a detector, and a host that reboots as a real one does.
//
// kwok runs the pods of these nodes but knows nothing of hosts. What a host does
// is done here, for each node by a machine: it runs a real detector where the
// DaemonSet has a pod on the node; it runs the container of a reboot Job's pod as a real
// process; and it has a stand-in for init. When that one gets SIGRTMIN+5, or is
// killed, the host goes down with all that runs on it, and comes up in another boot.
//
// It writes Nodes (their status), the status of pods on them, and pods' deletion
// where a kubelet would; with a user of its own, "sim", in the audit log.
package sim
