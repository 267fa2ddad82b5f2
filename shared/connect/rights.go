package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// All is the rights of several lists.
func All(lists ...[]Right) []Right { return slices.Concat(lists...) }

// AwaitRights returns when the daemon has all the rights that it needs. Until
// then it names those that are missing, in the log and in /readyz, and asks
// again, less and less often.
func AwaitRights(ctx context.Context, env *daemon.Env, config *rest.Config, rights []Right) error {
	env.Health.Need("rights")
	client, err := REST(config)
	if err != nil {
		return err
	}
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 30 * time.Second}
	for {
		err := MissingRights(ctx, client, rights)
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

// MissingRights is an error that names every right that is missing, or says that
// this could not be found out.
func MissingRights(ctx context.Context, client *rest.RESTClient, rights []Right) error {
	var errs []error
	for _, r := range rights {
		allowed, err := review(ctx, client, r)
		switch {
		case apierrors.IsForbidden(err):
			return nil // who may not ask finds out by trying
		case err != nil:
			return fmt.Errorf("asking for the right to %s: %w", r, err)
		case !allowed:
			errs = append(errs, fmt.Errorf("missing right: %s", r))
		}
	}
	return errors.Join(errs...)
}

// accessReview is what is needed here of a SelfSubjectAccessReview of
// authorization.k8s.io/v1.
type accessReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		ResourceAttributes map[string]string `json:"resourceAttributes"`
	} `json:"spec"`
	Status struct {
		Allowed bool `json:"allowed"`
	} `json:"status"`
}

// review asks the API server whether the daemon has the right.
func review(ctx context.Context, client *rest.RESTClient, r Right) (bool, error) {
	question := accessReview{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
	question.Spec.ResourceAttributes = map[string]string{
		"namespace": r.Namespace, "verb": r.Verb, "group": r.Group, "resource": r.Resource, "subresource": r.Subresource,
	}
	body, err := json.Marshal(question)
	if err != nil {
		return false, err
	}
	answer, err := Ask(ctx, client.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").Body(body))
	if err != nil {
		return false, err
	}
	var given accessReview
	err = json.Unmarshal(answer, &given)
	return given.Status.Allowed, err
}
