package sim

// What the protocol says about pods on a node, to the letter. Not taken from package
// shared: the simulation is to notice when that changes.
const (
	nodesNamespace = "ganglion-nodes"
	detectorName   = "detector"           // of the DaemonSet
	grantLabel     = "ganglion.dev/grant" // of reboot Jobs' pods
	nodeEnv        = "GANGLION_NODE"
	zoneLabel      = "topology.kubernetes.io/zone"
	hostnameLabel  = "kubernetes.io/hostname"
	controlPlane   = "node-role.kubernetes.io/control-plane"
	kwokAnnotation = "kwok.x-k8s.io/node"
	sentinelFile   = "reboot-required"
	rebootSignal   = 39 // SIGRTMIN+5
)
