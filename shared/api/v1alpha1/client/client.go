// Package client is a typed client of the configuration API.
package client

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"ganglion.dev/shared/api/v1alpha1"
)

// Client reads and writes windows and procedures.
type Client struct {
	rest  *rest.RESTClient
	codec runtime.ParameterCodec
}

// Windows reads and writes windows.
type Windows = gentype.ClientWithList[*v1alpha1.NodesMaintenanceWindow, *v1alpha1.NodesMaintenanceWindowList]

// Procedures reads and writes procedures.
type Procedures = gentype.ClientWithList[*v1alpha1.RebootProcedure, *v1alpha1.RebootProcedureList]

// New makes a client.
func New(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the types of %s: %w", v1alpha1.SchemeGroupVersion, err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &v1alpha1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of %s: %w", v1alpha1.SchemeGroupVersion, err)
	}
	return &Client{client, runtime.NewParameterCodec(scheme)}, nil
}

// Windows reads and writes windows.
func (c *Client) Windows() *Windows {
	return gentype.NewClientWithList[*v1alpha1.NodesMaintenanceWindow, *v1alpha1.NodesMaintenanceWindowList](
		"nodesmaintenancewindows", c.rest, c.codec, "",
		func() *v1alpha1.NodesMaintenanceWindow { return &v1alpha1.NodesMaintenanceWindow{} },
		func() *v1alpha1.NodesMaintenanceWindowList { return &v1alpha1.NodesMaintenanceWindowList{} })
}

// Procedures reads and writes the procedures of a namespace.
func (c *Client) Procedures(namespace string) *Procedures {
	return gentype.NewClientWithList[*v1alpha1.RebootProcedure, *v1alpha1.RebootProcedureList](
		"rebootprocedures", c.rest, c.codec, namespace,
		func() *v1alpha1.RebootProcedure { return &v1alpha1.RebootProcedure{} },
		func() *v1alpha1.RebootProcedureList { return &v1alpha1.RebootProcedureList{} })
}

// WatchWindows lists and watches windows.
func (c *Client) WatchWindows() cache.ListerWatcher {
	return cache.NewListWatchFromClient(c.rest, "nodesmaintenancewindows", metav1.NamespaceAll, fields.Everything())
}

// WatchProcedures lists and watches the procedures of a namespace.
func (c *Client) WatchProcedures(namespace string) cache.ListerWatcher {
	return cache.NewListWatchFromClient(c.rest, "rebootprocedures", namespace, fields.Everything())
}
