package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NodesMaintenanceWindow says which nodes may be rebooted, when, how many at a
// time, what blocks that, and how they are drained and rebooted. A node belongs to
// the first window that selects it: of the highest priority, then by name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nmw,path=nodesmaintenancewindows
// +kubebuilder:printcolumn:name="Open",type=string,JSONPath=`.status.conditions[?(@.type=="Open")].status`
// +kubebuilder:printcolumn:name="Until/Next",type=string,JSONPath=`.status.untilOrNext`
// +kubebuilder:printcolumn:name="Need",type=integer,JSONPath=`.status.nodes.needReboot`
// +kubebuilder:printcolumn:name="In-Flight",type=integer,JSONPath=`.status.nodes.inFlight`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.status.maxConcurrent`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$')",message="metadata.name: a window's name is a DNS label of at most 40 characters: it is part of the names of its Leases"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'drain'",message="metadata.name: drain is taken: the Leases by which drainers claim nodes are called drain.<node>"
type NodesMaintenanceWindow struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec NodesMaintenanceWindowSpec `json:"spec,omitzero"`
	// +optional
	Status NodesMaintenanceWindowStatus `json:"status,omitzero"`
}

// NodesMaintenanceWindowList is a list of windows.
//
// +kubebuilder:object:root=true
type NodesMaintenanceWindowList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodesMaintenanceWindow `json:"items"`
}

// NodesMaintenanceWindowSpec is what the user wants.
type NodesMaintenanceWindowSpec struct {
	// The nodes that it is about, by their labels. Empty: every node.
	// +optional
	// +kubebuilder:default={}
	NodeSelector metav1.LabelSelector `json:"nodeSelector,omitzero"`
	// Where several windows select a node, the one with the highest priority has
	// it, then the first by name. Default 0.
	// +optional
	// +kubebuilder:default=0
	Priority int32 `json:"priority,omitempty"`
	// No new grants, and cycles that have not begun to reboot are revoked. The
	// nodes that are selected do not fall to another window meanwhile. Default false.
	// +optional
	// +kubebuilder:default=false
	Suspended bool `json:"suspended,omitempty"`
	// When it is open: while any of these is. None: always.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Schedules []Schedule `json:"schedules,omitempty"`
	// When it is closed, whatever the schedules say: while any of these is open.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Freezes []Schedule `json:"freezes,omitempty"`
	// No new grant where less than this is left of the opening. Default 0s.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="latestStart: must not be negative"
	LatestStart metav1.Duration `json:"latestStart,omitzero"`
	// What becomes of a cycle whose reboot has not begun when the window closes:
	// Abort revokes it and restores the node, Finish lets it go on. Default Abort.
	// +optional
	// +kubebuilder:default=Abort
	// +kubebuilder:validation:Enum=Abort;Finish
	Overrun Overrun `json:"overrun,omitempty"`
	// How many nodes at a time, and which.
	// +optional
	// +kubebuilder:default={}
	Serialization Serialization `json:"serialization,omitzero"`
	// The same node is not rebooted twice within this, even if its need survives
	// the reboot. Default 1h.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="minRebootInterval: must not be negative"
	MinRebootInterval metav1.Duration `json:"minRebootInterval,omitzero"`
	// What blocks new grants while it holds. What cannot be read blocks too.
	// +optional
	Blockers Blockers `json:"blockers,omitzero"`
	// Gates that a user's own controllers open for a node's grant.
	// +optional
	// +kubebuilder:default={}
	Gates Gates `json:"gates,omitzero"`
	// How nodes are drained.
	// +optional
	// +kubebuilder:default={}
	Drain Drain `json:"drain,omitzero"`
	// How nodes are rebooted.
	// +optional
	// +kubebuilder:default={}
	Reboot Reboot `json:"reboot,omitzero"`
}

// Schedule is an opening, in one of three forms: cron and duration, start and
// duration, or days, startTime and endTime.
//
// +kubebuilder:validation:XValidation:rule="(has(self.cron) ? 1 : 0) + (has(self.start) ? 1 : 0) + (has(self.days) ? 1 : 0) == 1",message="cron, start, days: exactly one of them says when it opens"
// +kubebuilder:validation:XValidation:rule="has(self.days) || has(self.duration)",message="duration: is required with cron and with start"
// +kubebuilder:validation:XValidation:rule="!has(self.days) || !has(self.duration)",message="duration: does not go with days, which has endTime"
// +kubebuilder:validation:XValidation:rule="has(self.days) == has(self.startTime)",message="startTime: goes with days, and only with days"
// +kubebuilder:validation:XValidation:rule="has(self.days) == has(self.endTime)",message="endTime: goes with days, and only with days"
// +kubebuilder:validation:XValidation:rule="!has(self.start) || !has(self.timeZone)",message="timeZone: does not go with start, which has its own"
type Schedule struct {
	// Opens at each match of these five fields, in the time zone.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^\S+( \S+){4}$`
	Cron string `json:"cron,omitempty"`
	// Opens once, at this time.
	// +optional
	Start *metav1.Time `json:"start,omitempty"`
	// How long it stays open, in elapsed time: 1m to 168h, for start up to 8784h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8784h')",message="duration: from 1m to 168h, for start up to 8784h"
	Duration *metav1.Duration `json:"duration,omitempty"`
	// Weekdays on which it opens.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	Days []Day `json:"days,omitempty"`
	// Wall-clock time at which it opens, HH:MM.
	// +optional
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	StartTime string `json:"startTime,omitempty"`
	// Wall-clock time at which it closes, HH:MM. At or before startTime: on the next day.
	// +optional
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	EndTime string `json:"endTime,omitempty"`
	// IANA time zone of cron and days. Default UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_+/-]*$`
	TimeZone string `json:"timeZone,omitempty"`
}

// Day is a weekday.
//
// +kubebuilder:validation:Enum=mon;tue;wed;thu;fri;sat;sun
type Day string

// Overrun says what becomes of a cycle that its window's end overtakes.
type Overrun string

// The values of Overrun.
const (
	OverrunAbort  Overrun = "Abort"
	OverrunFinish Overrun = "Finish"
)

// Serialization says how many nodes at a time, and which.
type Serialization struct {
	// How many nodes may be in flight: a count, or a percentage of the selected
	// nodes, rounded down, of which at least 1. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 100000 : self.matches('^([1-9][0-9]?|100)%$')",message="maxConcurrent: a count from 1, or 1% to 100%"
	MaxConcurrent intstr.IntOrString `json:"maxConcurrent,omitzero"`
	// Label of nodes of which all nodes in flight share one value; the next value
	// comes when all of this one are done. Empty: none.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	TopologyKey string `json:"topologyKey,omitempty"`
	// Whether selected nodes that are not Ready, or in flight of another window,
	// are left out when slots are counted. Default false: they use up capacity.
	// +optional
	// +kubebuilder:default=false
	IgnoreUnavailable bool `json:"ignoreUnavailable,omitempty"`
	// How long a node's slot is kept after the node was restored. Default 0s.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="settle: must not be negative"
	Settle metav1.Duration `json:"settle,omitzero"`
	// Consecutive failed cycles after which the window stops granting until its
	// spec changes. Default 0: never.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	MaxFailures int32 `json:"maxFailures,omitempty"`
	// Which nodes go first: OldestNeedFirst or Name. Default OldestNeedFirst.
	// +optional
	// +kubebuilder:default=OldestNeedFirst
	// +kubebuilder:validation:Enum=OldestNeedFirst;Name
	Order string `json:"order,omitempty"`
}

// Blockers block new grants while they hold.
type Blockers struct {
	// Queries and alerts of Prometheus.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	Prometheus []PrometheusBlocker `json:"prometheus,omitempty"`
	// Running pods that block the node that they run on.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	Pods []PodBlocker `json:"pods,omitempty"`
	// Selected nodes that block themselves.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	Nodes []NodeBlocker `json:"nodes,omitempty"`
}

// PrometheusBlocker blocks while a query returns any sample, or while alerts fire.
//
// +kubebuilder:validation:XValidation:rule="!has(self.query) || !has(self.ignoreAlerts) && !has(self.onlyAlerts) && (!has(self.includePending) || !self.includePending)",message="query: does not go with ignoreAlerts, onlyAlerts or includePending"
// +kubebuilder:validation:XValidation:rule="!has(self.ignoreAlerts) || !has(self.onlyAlerts)",message="ignoreAlerts: does not go with onlyAlerts"
type PrometheusBlocker struct {
	// The server's URL.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://\S+$`
	URL string `json:"url"`
	// PromQL: blocks while it returns any sample.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query,omitempty"`
	// RE2, not anchored: firing alerts whose name does not match block.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	IgnoreAlerts string `json:"ignoreAlerts,omitempty"`
	// RE2, not anchored: only firing alerts whose name matches block.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	OnlyAlerts string `json:"onlyAlerts,omitempty"`
	// Whether pending alerts count as firing. Default false.
	// +optional
	IncludePending bool `json:"includePending,omitempty"`
	// How long an answer may take. Default 10s.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="timeout: must be more than 0"
	Timeout metav1.Duration `json:"timeout,omitzero"`
}

// PodBlocker blocks the node that a matching pod runs on.
type PodBlocker struct {
	// The pods, by their labels.
	Selector metav1.LabelSelector `json:"selector"`
	// Their namespace. Empty: all.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// NodeBlocker blocks the nodes that match.
type NodeBlocker struct {
	// The nodes, by their labels.
	Selector metav1.LabelSelector `json:"selector"`
}

// Gates are opened by annotations gate.ganglion.dev/<gate>: <grant>.
type Gates struct {
	// Gates before the cordon.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	BeforeDrain []GateName `json:"beforeDrain,omitempty"`
	// Gates before the reboot.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	BeforeReboot []GateName `json:"beforeReboot,omitempty"`
	// Gates before the node is made schedulable again.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	AfterReboot []GateName `json:"afterReboot,omitempty"`
	// How long a gate may stay closed; then the cycle fails. Default 30m.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="timeout: must be more than 0"
	Timeout metav1.Duration `json:"timeout,omitzero"`
}

// GateName is the part of a gate's annotation after the slash.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
type GateName string

// Drain says how nodes are drained.
type Drain struct {
	// Cordon only, evict nothing. Default false.
	// +optional
	// +kubebuilder:default=false
	Skip bool `json:"skip,omitempty"`
	// How long a drain may take. Default 30m. 0 is refused: a drain always ends.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="timeout: must be more than 0: a drain always ends"
	Timeout metav1.Duration `json:"timeout,omitzero"`
	// What happens then: Abort (restore the node and back off), Delete (delete
	// pods instead of evicting them, ignoring their budgets) or Proceed (reboot all
	// the same). Default Abort.
	// +optional
	// +kubebuilder:default=Abort
	// +kubebuilder:validation:Enum=Abort;Delete;Proceed
	OnTimeout DrainTimeout `json:"onTimeout,omitempty"`
	// Try the evictions before the cordon: a node that cannot be drained now is
	// not cordoned, and gives its slot back. Default true.
	// +optional
	// +kubebuilder:default=true
	Preflight *bool `json:"preflight,omitempty"`
	// Seconds that a pod gets to end. Negative: as long as the pod itself says. Default -1.
	// +optional
	// +kubebuilder:default=-1
	// +kubebuilder:validation:Minimum=-1
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
	// Only these pods are evicted. Absent: all.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// Pods that are still there so long after their grace period has ended are not
	// waited for. Whole seconds. Default 0s: all are.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="skipWaitForDeleteTimeout: must not be negative"
	SkipWaitForDeleteTimeout metav1.Duration `json:"skipWaitForDeleteTimeout,omitzero"`
	// Evict pods with emptyDir volumes too, whose data is lost. Where false, such a
	// pod makes the drain fail. Default true.
	// +optional
	// +kubebuilder:default=true
	DeleteEmptyDirData *bool `json:"deleteEmptyDirData,omitempty"`
	// More than 0: first label the node
	// node.kubernetes.io/exclude-from-external-load-balancers, wait this long, then
	// evict. Default 0s.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="loadBalancerDelay: must not be negative"
	LoadBalancerDelay metav1.Duration `json:"loadBalancerDelay,omitzero"`
}

// DrainTimeout says what happens when a drain takes too long.
type DrainTimeout string

// The values of DrainTimeout.
const (
	DrainAbort   DrainTimeout = "Abort"
	DrainDelete  DrainTimeout = "Delete"
	DrainProceed DrainTimeout = "Proceed"
)

// Reboot says how nodes are rebooted.
type Reboot struct {
	// Name of a RebootProcedure. Default "default".
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Procedure string `json:"procedure,omitempty"`
	// How long until the node has to be Ready with another boot id. Default 15m.
	// +optional
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="timeout: must be more than 0"
	Timeout metav1.Duration `json:"timeout,omitzero"`
	// What happens then to a node that is not back: Hold (it keeps its slot, and
	// the window reports it Stalled) or Release (it counts as failed, and the slot
	// goes on). A node that is there, in its old boot, has failed either way.
	// Default Hold.
	// +optional
	// +kubebuilder:default=Hold
	// +kubebuilder:validation:Enum=Hold;Release
	OnTimeout RebootTimeout `json:"onTimeout,omitempty"`
}

// RebootTimeout says what happens when a reboot takes too long.
type RebootTimeout string

// The values of RebootTimeout.
const (
	RebootHold    RebootTimeout = "Hold"
	RebootRelease RebootTimeout = "Release"
)

// The types of a window's conditions.
const (
	// ConditionValid: the spec can be obeyed.
	ConditionValid = "Valid"
	// ConditionOpen: it grants.
	ConditionOpen = "Open"
	// ConditionBlocked: a blocker holds.
	ConditionBlocked = "Blocked"
	// ConditionStalled: nodes have not come back in time.
	ConditionStalled = "Stalled"
)

// NodesMaintenanceWindowStatus is what the locker sees.
type NodesMaintenanceWindowStatus struct {
	// The generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Valid, Open, Blocked, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// When the current opening ends.
	// +optional
	OpenUntil *metav1.Time `json:"openUntil,omitempty"`
	// The next opening, in the window's own zone.
	// +optional
	NextOpen string `json:"nextOpen,omitempty"`
	// openUntil or nextOpen, whichever applies, or "always", for printing.
	// +optional
	UntilOrNext string `json:"untilOrNext,omitempty"`
	// How many nodes may be in flight now.
	// +optional
	MaxConcurrent int32 `json:"maxConcurrent"`
	// In a word, what holds it up, or what goes on.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Counts of its nodes.
	// +optional
	Nodes NodeCounts `json:"nodes"`
	// The nodes that hold its slots.
	// +optional
	// +listType=atomic
	InFlight []InFlightNode `json:"inFlight,omitempty"`
	// The first ten nodes that wait, in order, and why they do.
	// +optional
	// +listType=atomic
	Waiting []WaitingNode `json:"waiting,omitempty"`
}

// NodeCounts counts a window's nodes.
type NodeCounts struct {
	// Nodes that it selects.
	Selected int32 `json:"selected"`
	// Of these, nodes that need a reboot.
	NeedReboot int32 `json:"needReboot"`
	// Nodes that hold one of its slots.
	InFlight int32 `json:"inFlight"`
	// Selected nodes whose last cycle failed.
	Failed int32 `json:"failed"`
}

// InFlightNode is a node that holds a slot.
type InFlightNode struct {
	Node  string      `json:"node"`
	Grant string      `json:"grant"`
	Phase string      `json:"phase"`
	Since metav1.Time `json:"since"`
}

// WaitingNode is a node that waits, and why it does.
type WaitingNode struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}
