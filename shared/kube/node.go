package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/protocol"
)

// Node is what the rules need to know of a Node object.
func Node(n *corev1.Node) *protocol.Node {
	node := &protocol.Node{
		Name:            n.Name,
		UID:             string(n.UID),
		ResourceVersion: n.ResourceVersion,
		Labels:          n.Labels,
		Unschedulable:   n.Spec.Unschedulable,
		BootID:          n.Status.NodeInfo.BootID,
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			node.Ready = c.Status == corev1.ConditionTrue
		}
	}
	node.State, node.Err = protocol.ParseState(n.Annotations)
	return node
}

// TrimNode drops from a Node what no rule needs, so that a cache of thousands
// stays small. It is an informer's transform.
func TrimNode(object any) (any, error) {
	n, is := object.(*corev1.Node)
	if !is {
		return object, nil
	}
	trimmed := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels,
			DeletionTimestamp: n.DeletionTimestamp,
		},
		Spec: corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable},
	}
	trimmed.Status.NodeInfo.BootID = n.Status.NodeInfo.BootID
	for key, value := range n.Annotations {
		if strings.Contains(key, protocol.Domain+"/") {
			metav1.SetMetaDataAnnotation(&trimmed.ObjectMeta, key, value)
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			trimmed.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return trimmed, nil
}

// NodeChange is one write to a Node.
type NodeChange struct {
	// Annotations to set; nil removes one.
	Annotations map[string]*string
	// Unschedulable to set; nil leaves it.
	Unschedulable *bool
}

// Set is a NodeChange that sets one annotation.
func Set(key string, value fmt.Stringer) NodeChange {
	text := value.String()
	return NodeChange{Annotations: map[string]*string{key: &text}}
}

// PatchNode makes the change where the Node is still as it was observed. Where
// it is not, the error is a conflict (apierrors.IsConflict).
func PatchNode(ctx context.Context, nodes typedcorev1.NodeInterface, observed *protocol.Node, change NodeChange) (*corev1.Node, error) {
	metadata := map[string]any{"resourceVersion": observed.ResourceVersion, "uid": observed.UID}
	if change.Annotations != nil {
		metadata["annotations"] = change.Annotations
	}
	patch := map[string]any{"metadata": metadata}
	if change.Unschedulable != nil {
		patch["spec"] = map[string]any{"unschedulable": *change.Unschedulable}
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("rendering the patch of node %s: %w", observed.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	patched, err := nodes.Patch(ctx, observed.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("patching node %s: %w", observed.Name, err)
	}
	return patched, nil
}

// Reference is what an Event about a node refers to.
func Reference(n *protocol.Node) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: types.UID(n.UID)}
}
