package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/need"
)

// nodeClient reads and writes one key of one Node.
type nodeClient struct {
	rest *rest.RESTClient
	node string
	key  string
	uid  types.UID // of the Node as last seen
}

func newNodeClient(config *rest.Config, node, key string) (*nodeClient, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the core types: %w", err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	return &nodeClient{rest: client, node: node, key: key}, nil
}

// read is the key as it stands.
func (c *nodeClient) read(ctx context.Context) (need.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	node := &metav1.PartialObjectMetadata{}
	if err := c.do(ctx, c.rest.Get(), node); err != nil {
		return need.Key{}, fmt.Errorf("reading node %s: %w", c.node, err)
	}
	return c.keyOf(node), nil
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
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	node := &metav1.PartialObjectMetadata{}
	if err := c.do(ctx, c.rest.Patch(types.MergePatchType).Body(patch), node); err != nil {
		return fmt.Errorf("patching node %s: %w", c.node, err)
	}
	c.keyOf(node)
	return nil
}

// do asks for the metadata alone: a Node of a real cluster is 10 KiB and more.
func (c *nodeClient) do(ctx context.Context, request *rest.Request, into *metav1.PartialObjectMetadata) error {
	body, err := request.Resource("nodes").Name(c.node).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json").
		Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func (c *nodeClient) keyOf(node *metav1.PartialObjectMetadata) need.Key {
	c.uid = node.UID
	value, there := node.Annotations[c.key]
	return need.Key{There: there, Value: value}
}

// record writes an Event on the node. Nothing depends on it.
func (c *nodeClient) record(ctx context.Context, kind, reason, message string) error {
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%.200s.%x", c.node, now.UnixNano()), Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: c.node, UID: c.uid},
		Type:           kind, Reason: reason, Message: message,
		Source:         corev1.EventSource{Component: "ganglion-detector", Host: c.node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := c.rest.Post().Namespace(event.Namespace).Resource("events").Body(event).Do(ctx).Error(); err != nil {
		return fmt.Errorf("recording the Event %s: %w", reason, err)
	}
	return nil
}
