package connect

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// REST is a client that knows no types: bodies are JSON, both ways. It takes the
// API server's refusals apart like every client of client-go, and is what the
// detector uses, since the types of the core API alone are megabytes.
func REST(config *rest.Config) (*rest.RESTClient, error) {
	scheme, version := runtime.NewScheme(), schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, version)
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &version
	config.ContentType = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	return client, nil
}

// Ask sends a request of REST's and gives the body of the answer. An error is what
// the API server says of it, as apierrors tells such errors apart.
func Ask(ctx context.Context, request *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	result := request.Do(ctx)
	if err := result.Error(); err != nil { // Raw alone drops the API server's words
		return nil, err
	}
	return result.Raw()
}
