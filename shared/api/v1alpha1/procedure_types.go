package v1alpha1

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RebootProcedure is how a node is rebooted: a Job, with the user's own image,
// command, volumes and privileges. It has to be in the namespace of the reboot
// Jobs.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=rbp,path=rebootprocedures
// +kubebuilder:printcolumn:name="Placement",type=string,JSONPath=`.spec.placement`
// +kubebuilder:printcolumn:name="Completion",type=string,JSONPath=`.spec.completion`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RebootProcedure struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RebootProcedureSpec `json:"spec"`
}

// RebootProcedureList is a list of procedures.
//
// +kubebuilder:object:root=true
type RebootProcedureList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RebootProcedure `json:"items"`
}

// RebootProcedureSpec is what the user wants.
type RebootProcedureSpec struct {
	// Node: the pod is bound to the node, whatever its taints. Anywhere: it is
	// scheduled as usual, for procedures that call an API. Default Node.
	// +optional
	// +kubebuilder:default=Node
	// +kubebuilder:validation:Enum=Node;Anywhere
	Placement Placement `json:"placement,omitempty"`
	// BootIDChanged: complete once the node is Ready with another boot id.
	// JobSucceeded: complete once the Job is, for maintenance without a reboot.
	// Default BootIDChanged.
	// +optional
	// +kubebuilder:default=BootIDChanged
	// +kubebuilder:validation:Enum=BootIDChanged;JobSucceeded
	Completion Completion `json:"completion,omitempty"`
	// The Job. To it are added the node, the variables GANGLION_NODE,
	// GANGLION_BOOT_ID and GANGLION_GRANT in every container, labels,
	// backoffLimit: 0, parallelism and completions: 1, restartPolicy: Never,
	// automountServiceAccountToken: false where unset, and
	// ttlSecondsAfterFinished, which is raised to outlive the cycle.
	//
	// +kubebuilder:validation:XValidation:rule="size(self.spec.template.spec.containers) > 0",message="jobTemplate.spec.template.spec.containers: at least one is required"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec.template.spec.restartPolicy) || self.spec.template.spec.restartPolicy == 'Never'",message="jobTemplate.spec.template.spec.restartPolicy: must be Never: a reboot is not tried twice"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec.backoffLimit) || self.spec.backoffLimit == 0",message="jobTemplate.spec.backoffLimit: must be 0: a reboot is not tried twice"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec.parallelism) || self.spec.parallelism == 1",message="jobTemplate.spec.parallelism: must be 1"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec.completions) || self.spec.completions == 1",message="jobTemplate.spec.completions: must be 1"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec.suspend) || !self.spec.suspend",message="jobTemplate.spec.suspend: must not be true: nobody would start it"
	JobTemplate batchv1.JobTemplateSpec `json:"jobTemplate"`
}

// Placement says where the Job's pod runs.
type Placement string

// The values of Placement.
const (
	PlacementNode     Placement = "Node"
	PlacementAnywhere Placement = "Anywhere"
)

// Completion says when a procedure is complete.
type Completion string

// The values of Completion.
const (
	CompletionBootIDChanged Completion = "BootIDChanged"
	CompletionJobSucceeded  Completion = "JobSucceeded"
)
