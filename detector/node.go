package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/need"
)

// rights are all that it must be allowed to do.
var rights = connect.All(
	connect.Rights("", "nodes", "", "", "get", "patch"),
	connect.Rights("", "events", "", metav1.NamespaceDefault, "create"),
)

// nodeClient reads and writes one key of one Node.
type nodeClient struct {
	rest *rest.RESTClient
	node string
	key  string
	uid  types.UID // of the Node as last seen
}

// read is the key as it stands.
func (c *nodeClient) read(ctx context.Context) (need.Key, error) {
	key, err := c.do(ctx, c.rest.Get())
	if err != nil {
		return need.Key{}, fmt.Errorf("reading node %s: %w", c.node, err)
	}
	return key, nil
}

// write makes the key what it has to be. No other key is touched, so there is
// nothing to conflict with.
func (c *nodeClient) write(ctx context.Context, key need.Key) error {
	var value *string
	if key.There {
		value = &key.Value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{c.key: value}}})
	if err != nil {
		return fmt.Errorf("rendering the patch: %w", err)
	}
	if _, err := c.do(ctx, c.rest.Patch(types.MergePatchType).Body(patch)); err != nil {
		return fmt.Errorf("patching node %s: %w", c.node, err)
	}
	return nil
}

// do asks for the metadata alone: a Node of a real cluster is 10 KiB and more.
func (c *nodeClient) do(ctx context.Context, request *rest.Request) (need.Key, error) {
	body, err := connect.Ask(ctx, request.Resource("nodes").Name(c.node).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"))
	if err != nil {
		return need.Key{}, err
	}
	var node struct {
		Metadata struct {
			UID         types.UID         `json:"uid"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &node); err != nil {
		return need.Key{}, fmt.Errorf("reading the answer: %w", err)
	}
	c.uid = node.Metadata.UID
	value, there := node.Metadata.Annotations[c.key]
	return need.Key{There: there, Value: value}, nil
}

// The types of Events.
const (
	normal  = "Normal"
	warning = "Warning"
)

// event is what is written of an Event of the core API, version v1.
type event struct {
	Metadata       metadata  `json:"metadata"`
	InvolvedObject reference `json:"involvedObject"`
	Type           string    `json:"type"`
	Reason         string    `json:"reason"`
	Message        string    `json:"message"`
	Source         source    `json:"source"`
	FirstTimestamp time.Time `json:"firstTimestamp"`
	LastTimestamp  time.Time `json:"lastTimestamp"`
	Count          int       `json:"count"`
}

type metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

type reference struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

type source struct {
	Component string `json:"component"`
	Host      string `json:"host"`
}

// newEvent tells of something that happened now to the node.
func (c *nodeClient) newEvent(now time.Time, kind, reason, message string) event {
	now = now.UTC().Truncate(time.Second)
	return event{
		Metadata: metadata{Name: fmt.Sprintf("%.200s.%x", c.node, time.Now().UnixNano()), Namespace: metav1.NamespaceDefault},
		Type:     kind, Reason: reason, Message: fmt.Sprintf("%.1024s", message),
		Source:         source{Component: "ganglion-detector", Host: c.node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}

// record writes an Event on the node. An Event that the API server will not have is
// dropped, since nothing depends on it: the error is one that may pass.
func (c *nodeClient) record(ctx context.Context, e event) error {
	e.InvolvedObject = reference{APIVersion: "v1", Kind: "Node", Name: c.node, UID: c.uid}
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("rendering the Event %s: %w", e.Reason, err)
	}
	_, err = connect.Ask(ctx, c.rest.Post().Namespace(e.Metadata.Namespace).Resource("events").Body(body))
	if err == nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("recording the Event %s: %w", e.Reason, err)
}
