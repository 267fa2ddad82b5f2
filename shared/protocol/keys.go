package protocol

import "strings"

// Domain is the suffix of every key, and the API group.
const Domain = "ganglion.dev"

// Annotations of a Node. Each has one setter and no other writes it.
const (
	// NeedPrefix starts the keys by which detectors, or an admin, say that a
	// node needs a reboot. Their presence is what counts, not their value.
	NeedPrefix = "detector." + Domain + "/"
	// HoldKey is set by an admin: no new grant while it is there, and a cycle
	// that has not begun to reboot is revoked.
	HoldKey = Domain + "/hold"
	// LockerKey carries a LockerStatus.
	LockerKey = "locker." + Domain + "/status"
	// DrainerKey carries a DrainerStatus.
	DrainerKey = "drainer." + Domain + "/status"
	// RebooterKey carries a RebooterStatus. The dispatcher sets it.
	RebooterKey = "rebooter." + Domain + "/status"
	// GatePrefix starts the keys by which a user's own controllers open a gate
	// for one grant.
	GatePrefix = "gate." + Domain + "/"
)

// Labels and annotations of slot Leases, of reboot Jobs and of their pods.
const (
	// WindowKey is the label of a slot Lease, and of a Job, that names its window.
	WindowKey = Domain + "/window"
	// NodeUIDKey is the annotation of a slot Lease with the UID of its holder.
	NodeUIDKey = Domain + "/node-uid"
	// FailuresKey is the annotation of a slot Lease with the number of
	// consecutive cycles of its holder that had failed when it was taken.
	FailuresKey = Domain + "/failures"
	// GrantKey is the label of a Job and of its pods, and the annotation of a
	// drainer's claim, that names the grant they serve.
	GrantKey = Domain + "/grant"
	// NodeKey is the annotation of a Job with the name of the node to reboot: a
	// node's name can be too long for a label.
	NodeKey = Domain + "/node"
)

// Namespaces that the default deployment uses.
const (
	// SystemNamespace holds the locker, the drainer, the dispatcher and all Leases.
	SystemNamespace = "ganglion-system"
	// NodesNamespace holds what runs on the nodes: detectors and reboot Jobs,
	// and the RebootProcedures that the Jobs are made from.
	NodesNamespace = "ganglion-nodes"
)

// ControlPlaneLabel marks a node of the control plane, as kubeadm sets it.
// See https://kubernetes.io/docs/reference/labels-annotations-taints/#node-role-kubernetes-io-control-plane
const ControlPlaneLabel = "node-role.kubernetes.io/control-plane"

// IsNeed tells whether an annotation's key says that the node needs a reboot.
func IsNeed(key string) bool {
	return strings.HasPrefix(key, NeedPrefix) && len(key) > len(NeedPrefix)
}
