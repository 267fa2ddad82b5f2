package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"ganglion.dev/shared/protocol"
)

type (
	job    = batchv1.Job
	action = func(context.Context, kubernetes.Interface) error
)

var dry = []string{metav1.DryRunAll}

// nodeAttacks is what no daemon may do to a node, whoever it is. self is how the
// policy begins its refusal.
func nodeAttacks(who, self string) []attempt {
	mine := map[string]string{
		"detector": "detector.ganglion.dev/sentinel", "locker": "locker.ganglion.dev/status",
		"drainer": "drainer.ganglion.dev/status", "dispatcher": "rebooter.ganglion.dev/status",
	}[who]
	var list []attempt
	add := func(name, want string, do action) { list = append(list, attempt{name, do, want}) }
	for _, key := range protocolKeys {
		if key == mine {
			continue
		}
		add("set "+key, self+" the annotations "+key, patchAnnotation(own, key, "x"))
		if who != "locker" || !strings.HasPrefix(key, protocol.NeedPrefix) {
			add("remove "+key, self+" the annotations "+key, removeAnnotation(own, key))
		}
	}
	domain, name, _ := strings.Cut(mine, "/")
	for _, key := range []string{
		"x" + mine, domain + ".evil/" + name, "evil." + mine, strings.Replace(mine, ".dev/", ".dew/", 1),
		strings.Replace(mine, "ganglion.dev", "ganglion-dev", 1), domain + "x/" + name, name, domain, "gate." + mine,
	} {
		add("set "+key, self+" the annotations "+key, patchAnnotation(own, key, "x"))
	}
	if who != "detector" {
		for _, key := range []string{mine + "x", domain + "/other", strings.ToUpper(domain[:1]) + mine[1:]} {
			add("set "+key, self+" the annotations "+key, patchAnnotation(own, key, "x"))
		}
	}
	both := fmt.Sprintf(`{"metadata": {"annotations": {%q: "x", "ganglion.dev/hold": "x"}}}`, mine)
	add("set its own and another key", self+" the annotations ganglion.dev/hold", patchNode(own, both))
	add("remove all annotations", self+" the annotations", patchNode(own, `{"metadata": {"annotations": null}}`))
	add("add a label", self+" the labels evil", patchNode(own, `{"metadata": {"labels": {"evil": "x"}}}`))
	add("change a label", self+" the labels theirs", patchNode(own, `{"metadata": {"labels": {"theirs": "x"}}}`))
	add("remove a label", self+" the labels theirs", patchNode(own, `{"metadata": {"labels": {"theirs": null}}}`))
	add("make a control-plane node", self+" the labels", patchNode(own, `{"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}`))
	add("add a finalizer", self+" finalizers", patchNode(own, `{"metadata": {"finalizers": ["example.com/theirs", "evil.dev/x"]}}`))
	add("remove a finalizer", self+" finalizers", patchNode(own, `{"metadata": {"finalizers": []}}`))
	add("add an owner", self+" ownerReferences", patchNode(own,
		`{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}]}}`))
	add("add a taint", self+" these taints", patchNode(own,
		`{"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}, {"key": "evil", "effect": "NoExecute"}]}}`))
	add("remove a taint", self+" these taints", patchNode(own, `{"spec": {"taints": []}}`))
	add("set the provider's id", self+" the spec", patchNode(own, `{"spec": {"providerID": "evil://x"}}`))
	add("patch as JSON", self+" the annotations", jsonPatchNode(own, `[{"op": "add", "path": "/metadata/annotations/evil", "value": "x"}]`))
	add("apply", self+" the annotations", applyNode(own, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "annotations": {"evil": "x"}}}`))
	add("update", byRBAC, func(ctx context.Context, k kubernetes.Interface) error {
		_, err := k.CoreV1().Nodes().Update(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: own}}, metav1.UpdateOptions{DryRun: dry})
		return err
	})
	add("set its own key through the status", byRBAC, patchNode(own, fmt.Sprintf(`{"metadata": {"annotations": {%q: "x"}}}`, mine), "status"))
	add("set another key through the status", byRBAC, patchNode(own, `{"metadata": {"annotations": {"ganglion.dev/hold": "x"}}}`, "status"))
	add("set the boot id", byRBAC, patchNode(own, `{"status": {"nodeInfo": {"bootID": "x"}}}`, "status"))
	add("delete a node", byRBAC, func(ctx context.Context, k kubernetes.Interface) error {
		return k.CoreV1().Nodes().Delete(ctx, other, metav1.DeleteOptions{DryRun: dry})
	})
	add("delete all nodes", byRBAC, func(ctx context.Context, k kubernetes.Interface) error {
		return k.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dry}, metav1.ListOptions{})
	})
	add("create a node", byRBAC, func(ctx context.Context, k kubernetes.Interface) error {
		_, err := k.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}, metav1.CreateOptions{DryRun: dry})
		return err
	})
	add("speak to the kubelet", byRBAC, func(ctx context.Context, k kubernetes.Interface) error {
		return k.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + own + "/proxy/pods").Do(ctx).Error()
	})
	return list
}

// otherAttacks is what each daemon may try elsewhere. All of it is refused by RBAC but
// for what differs.
func otherAttacks(differs map[string]string) []attempt {
	list := map[string]action{
		"create an Event about a window":     createEventOf("NodesMaintenanceWindow", "default"),
		"create an Event about a pod":        createEventOf("Pod", "x"),
		"create an Event about its node":     createEventOf("Node", own),
		"create an Event about another node": createEventOf("Node", other),
		"create an Event in another's name":  createEvent("kubelet", "Node", own),
		"change an Event": func(ctx context.Context, k kubernetes.Interface) error {
			events, err := k.CoreV1().Events(metav1.NamespaceDefault).Patch(ctx, "theirs", types.MergePatchType, []byte(`{"message": "x"}`), metav1.PatchOptions{DryRun: dry})
			_ = events
			return err
		},
		"create an Event elsewhere": func(ctx context.Context, k kubernetes.Interface) error {
			_, err := k.CoreV1().Events("kube-system").Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{DryRun: dry})
			return err
		},
		"list Events": func(ctx context.Context, k kubernetes.Interface) error {
			_, err := k.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
			return err
		},
		"list pods everywhere": func(ctx context.Context, k kubernetes.Interface) error {
			_, err := k.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			return err
		},
		"evict a pod": func(ctx context.Context, k kubernetes.Interface) error {
			err := k.PolicyV1().Evictions("kube-system").Evict(ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: "kube-system"}, DeleteOptions: &metav1.DeleteOptions{DryRun: dry},
			})
			return orNotFound(err)
		},
		"delete a pod": func(ctx context.Context, k kubernetes.Interface) error {
			return k.CoreV1().Pods("kube-system").Delete(ctx, "none", metav1.DeleteOptions{DryRun: dry})
		},
		"create a pod":             createPod(protocol.NodesNamespace, "default"),
		"create a pod as detector": createPod(protocol.NodesNamespace, "detector"),
		"bind a pod": func(ctx context.Context, k kubernetes.Interface) error {
			return k.CoreV1().Pods("default").Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{DryRun: dry})
		},
		"run a command in a pod": func(ctx context.Context, k kubernetes.Interface) error {
			return k.CoreV1().RESTClient().Post().Namespace(protocol.NodesNamespace).Resource("pods").Name("x").SubResource("exec").Do(ctx).Error()
		},
		"read the logs of a pod": func(ctx context.Context, k kubernetes.Interface) error {
			return k.CoreV1().RESTClient().Get().Namespace(protocol.NodesNamespace).Resource("pods").Name("x").SubResource("log").Do(ctx).Error()
		},
		"get a token of the locker": func(ctx context.Context, k kubernetes.Interface) error {
			_, err := k.CoreV1().ServiceAccounts(protocol.SystemNamespace).CreateToken(ctx, "locker", &authenticationv1.TokenRequest{}, metav1.CreateOptions{DryRun: dry})
			return err
		},
		"get a token of the detector": func(ctx context.Context, k kubernetes.Interface) error {
			_, err := k.CoreV1().ServiceAccounts(protocol.NodesNamespace).CreateToken(ctx, "detector", &authenticationv1.TokenRequest{}, metav1.CreateOptions{DryRun: dry})
			return err
		},
		"become cluster-admin": func(ctx context.Context, k kubernetes.Interface) error {
			_, err := k.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "evil"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: protocol.SystemNamespace, Name: "locker"}},
			}, metav1.CreateOptions{DryRun: dry})
			return err
		},
		"remove the policy of nodes": func(ctx context.Context, k kubernetes.Interface) error {
			return k.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, "ganglion-nodes", metav1.DeleteOptions{DryRun: dry})
		},
		"unbind the policy of nodes": func(ctx context.Context, k kubernetes.Interface) error {
			return k.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "ganglion-nodes", metav1.DeleteOptions{DryRun: dry})
		},
		"loosen Pod Security": func(ctx context.Context, k kubernetes.Interface) error {
			_, err := k.CoreV1().Namespaces().Patch(ctx, protocol.SystemNamespace, types.MergePatchType,
				[]byte(`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}`), metav1.PatchOptions{DryRun: dry})
			return err
		},
		"change the DaemonSet": func(ctx context.Context, k kubernetes.Interface) error {
			_, err := k.AppsV1().DaemonSets(protocol.NodesNamespace).Patch(ctx, "detector", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{DryRun: dry})
			return err
		},
		"change a Deployment": func(ctx context.Context, k kubernetes.Interface) error {
			_, err := k.AppsV1().Deployments(protocol.SystemNamespace).Patch(ctx, "drainer", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{DryRun: dry})
			return err
		},
		"change a window": func(ctx context.Context, k kubernetes.Interface) error {
			return ours(k, "PATCH", "nodesmaintenancewindows/default", `{"spec": {"priority": 1}}`, ctx)
		},
		"change a procedure": createProcedure,
		"impersonate an admin": func(ctx context.Context, k kubernetes.Interface) error {
			return k.CoreV1().RESTClient().Get().Resource("nodes").SetHeader("Impersonate-User", "admin").SetHeader("Impersonate-Group", "system:masters").Do(ctx).Error()
		},
		"take a Lease of somebody": putLease(metav1.NamespaceDefault, lease("evil", "me", 1)),
		"take a kubelet's Lease":   putLease("kube-node-lease", lease(other, "me", 1)),
	}
	for _, namespace := range []string{"", "default", "kube-system", protocol.SystemNamespace, protocol.NodesNamespace} {
		list["list secrets in "+namespace] = func(ctx context.Context, k kubernetes.Interface) error {
			_, err := k.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
			return err
		}
		list["list ConfigMaps in "+namespace] = func(ctx context.Context, k kubernetes.Interface) error {
			_, err := k.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
			return err
		}
	}
	var attempts []attempt
	for _, name := range slices.Sorted(maps.Keys(list)) {
		want, is := differs[name]
		if !is {
			want = byRBAC
		}
		attempts = append(attempts, attempt{name, list[name], want})
	}
	return attempts
}

func patchNode(name, body string, subresources ...string) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		_, err := k.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{DryRun: dry}, subresources...)
		return err
	}
}

func jsonPatchNode(name, body string) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		_, err := k.CoreV1().Nodes().Patch(ctx, name, types.JSONPatchType, []byte(body), metav1.PatchOptions{DryRun: dry})
		return err
	}
}

func applyNode(name, body string) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		_, err := k.CoreV1().Nodes().Patch(ctx, name, types.ApplyPatchType, []byte(body), metav1.PatchOptions{DryRun: dry, FieldManager: "evil", Force: new(true)})
		return err
	}
}

func patchAnnotation(node, key, value string) action {
	return patchNode(node, fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, key, value))
}

func removeAnnotation(node, key string) action {
	return patchNode(node, fmt.Sprintf(`{"metadata": {"annotations": {%q: null}}}`, key))
}

func cordon(node string) action { return patchNode(node, `{"spec": {"unschedulable": true}}`) }

func getNode(name string) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		_, err := k.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err
	}
}

func listNodes(ctx context.Context, k kubernetes.Interface) error {
	_, err := k.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	return err
}

func lease(name, holder string, turn int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &turn},
	}
}

func getLease(namespace, name string) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		_, err := k.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	}
}

func putLease(namespace string, l *coordinationv1.Lease) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		_, err := k.CoordinationV1().Leases(namespace).Create(ctx, l, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func changeLease(name, holder string, turn int32) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		l, err := k.CoordinationV1().Leases(protocol.SystemNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("%w: %w", errNotTried, err)
		}
		l.Spec.HolderIdentity, l.Spec.LeaseTransitions = &holder, &turn
		_, err = k.CoordinationV1().Leases(protocol.SystemNamespace).Update(ctx, l, metav1.UpdateOptions{DryRun: dry})
		return err
	}
}

func deleteLease(name string) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		return k.CoordinationV1().Leases(protocol.SystemNamespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: dry})
	}
}

// createEventOf creates an Event in the name of whoever the client is.
func createEventOf(kind, name string) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		who, err := k.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("%w: %w", errNotTried, err)
		}
		parts := strings.Split(who.Status.UserInfo.Username, ":")
		return createEvent("ganglion-"+parts[len(parts)-1], kind, name)(ctx, k)
	}
}

func createEvent(component, kind, name string) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		_, err := k.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "x"},
			InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name},
			Source:         corev1.EventSource{Component: component},
		}, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func createPod(namespace, account string) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		_, err := k.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "x"},
			Spec:       corev1.PodSpec{ServiceAccountName: account, NodeName: other, Containers: []corev1.Container{{Name: "x", Image: "x"}}},
		}, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

// newJob is a Job as the dispatcher makes it.
func newJob() *job {
	return &job{
		ObjectMeta: metav1.ObjectMeta{
			Name: "reboot-x", Namespace: protocol.NodesNamespace,
			Labels: map[string]string{
				"app.kubernetes.io/managed-by": "ganglion", protocol.WindowKey: "default", protocol.GrantKey: "default.0.5",
			},
			Annotations: map[string]string{protocol.NodeKey: own, protocol.NodeUIDKey: "u"},
		},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(0)), Suspend: new(true),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				AutomountServiceAccountToken: new(false), RestartPolicy: corev1.RestartPolicyNever, NodeName: own,
				Containers: []corev1.Container{{Name: "x", Image: "x"}},
			}},
		},
	}
}

func createJob(change func(*job)) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		j := newJob()
		change(j)
		_, err := k.BatchV1().Jobs(j.Namespace).Create(ctx, j, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func deleteJob(name string) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		return k.BatchV1().Jobs(protocol.NodesNamespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: dry})
	}
}

func suspendJob(name string) action {
	return func(ctx context.Context, k kubernetes.Interface) error {
		_, err := k.BatchV1().Jobs(protocol.NodesNamespace).Patch(ctx, name, types.MergePatchType, []byte(`{"spec": {"suspend": false}}`), metav1.PatchOptions{DryRun: dry})
		return err
	}
}

func createProcedure(ctx context.Context, k kubernetes.Interface) error {
	return ours(k, "PATCH", "namespaces/"+protocol.NodesNamespace+"/rebootprocedures/default", `{"spec": {"placement": "Anywhere"}}`, ctx)
}

// windowStatus writes a window's status as it stands.
func windowStatus(ctx context.Context, k kubernetes.Interface) error {
	path := "/apis/ganglion.dev/v1alpha1/nodesmaintenancewindows/default"
	window, err := k.CoreV1().RESTClient().Get().AbsPath(path).Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("%w: %w", errNotTried, err)
	}
	var object map[string]any
	if err := json.Unmarshal(window, &object); err != nil {
		return fmt.Errorf("%w: %w", errNotTried, err)
	}
	object["status"] = map[string]any{"observedGeneration": 1}
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotTried, err)
	}
	return k.CoreV1().RESTClient().Put().AbsPath(path+"/status").Param("dryRun", "All").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}

// ours sends a request about one of our own resources.
func ours(k kubernetes.Interface, verb, path, body string, ctx context.Context) error {
	return k.CoreV1().RESTClient().Verb(verb).AbsPath("/apis/ganglion.dev/v1alpha1/"+path).Param("dryRun", "All").
		SetHeader("Content-Type", string(types.MergePatchType)).Body([]byte(body)).Do(ctx).Error()
}

// orNotFound is nil where the right was there and the object was not.
func orNotFound(err error) error {
	if err != nil && strings.Contains(err.Error(), "not found") {
		return nil
	}
	return err
}
