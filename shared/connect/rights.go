package connect

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"go.uber.org/zap"

	"ganglion.dev/shared/daemon"
)

// Right is something that a daemon must be allowed to do.
type Right struct {
	Verb, Group, Resource, Subresource, Namespace string
}

// String is the right as one would write it down.
func (r Right) String() string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Namespace != "" {
		return fmt.Sprintf("%s %s in namespace %s", r.Verb, resource, r.Namespace)
	}
	return fmt.Sprintf("%s %s", r.Verb, resource)
}

// Rights lists a right for each verb.
func Rights(group, resource, subresource, namespace string, verbs ...string) []Right {
	var rights []Right
	for _, verb := range verbs {
		rights = append(rights, Right{verb, group, resource, subresource, namespace})
	}
	return rights
}

// AwaitRights returns when the daemon has all the rights that it needs. Until
// then it names those that are missing, in the log and in /readyz, and asks
// again, less and less often.
func AwaitRights(ctx context.Context, env *daemon.Env, config *rest.Config, rights []Right) error {
	env.Health.Need("rights")
	client, err := reviewClient(config)
	if err != nil {
		return err
	}
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 30 * time.Second}
	for {
		err := missingRights(ctx, client, rights)
		env.Health.SetReady("rights", err)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		env.Log.Warn("waiting for rights", zap.Error(err))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(backoff.Step()):
		}
	}
}

func reviewClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := authorizationv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the types of access reviews: %w", err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &authorizationv1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of access reviews: %w", err)
	}
	return client, nil
}

func missingRights(ctx context.Context, client *rest.RESTClient, rights []Right) error {
	var errs []error
	for _, r := range rights {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource,
			},
		}}
		answer := &authorizationv1.SelfSubjectAccessReview{}
		err := client.Post().Resource("selfsubjectaccessreviews").Timeout(RequestTimeout).
			Body(review).Do(ctx).Into(answer)
		switch {
		case err != nil:
			return fmt.Errorf("asking for the right to %s: %w", r, err)
		case !answer.Status.Allowed:
			errs = append(errs, fmt.Errorf("missing right: %s", r))
		}
	}
	return errors.Join(errs...)
}
