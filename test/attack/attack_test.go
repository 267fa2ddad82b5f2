package attack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"ganglion.dev/shared/protocol"
	"ganglion.dev/test/cluster"
	"ganglion.dev/test/sim"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{}) }

// The nodes of the cluster: the detector whose token is tried runs on the first.
const own, other = "node-a", "node-b"

// allowed and byRBAC are what can become of an attempt; any other text is that of the
// policy that refuses it.
const (
	allowed = ""
	byRBAC  = "cannot"
)

// attempt is one thing to try. Nothing takes effect: admission and RBAC treat a dry
// run like the real thing.
type attempt struct {
	name string
	do   func(ctx context.Context, k kubernetes.Interface) error
	want string
}

// prepared is a cluster with deploy/ applied, two nodes and the daemons' tokens.
type prepared struct {
	*cluster.Cluster
	tokens map[string]string
	// unbound is a token of the detector's account that no pod has.
	unbound string
}

func prepare(t *testing.T) *prepared {
	t.Helper()
	c, ctx := cluster.Shared(t), t.Context()
	root, err := cluster.Root()
	must(t, err)
	must(t, c.Apply(ctx, filepath.Join(root, "deploy", "overlays", "default")))
	s, err := sim.New(c, sim.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close(context.WithoutCancel(ctx))) })
	must(t, s.AddNodes(ctx, []sim.NodeSpec{{Name: own}, {Name: other}}))
	p := &prepared{Cluster: c, tokens: map[string]string{}}
	for _, daemon := range []string{"locker", "drainer", "dispatcher"} {
		p.tokens[daemon], err = c.Token(ctx, protocol.SystemNamespace, daemon, nil)
		must(t, err)
	}
	pod := p.detectorPod(t, own)
	p.tokens["detector"], err = c.Token(ctx, protocol.NodesNamespace, "detector", pod)
	must(t, err)
	p.unbound, err = c.Token(ctx, protocol.NodesNamespace, "detector", nil)
	must(t, err)
	p.annotate(t, own)
	p.leases(t)
	p.event(t)
	p.untilPoliciesAct(t)
	return p
}

// detectorPod is the detector's pod on a node.
func (p *prepared) detectorPod(t *testing.T, node string) *corev1.Pod {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		pods, err := p.Admin().CoreV1().Pods(protocol.NodesNamespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		must(t, err)
		for i := range pods.Items {
			if pods.Items[i].Spec.ServiceAccountName == "detector" {
				return &pods.Items[i]
			}
		}
	}
	t.Fatalf("there is no detector on %s", node)
	return nil
}

// annotate puts every key of the protocol on the node, so that each can be attacked.
func (p *prepared) annotate(t *testing.T, node string) {
	t.Helper()
	var keys []string
	for _, key := range protocolKeys {
		keys = append(keys, fmt.Sprintf("%q: %q", key, "there"))
	}
	body := fmt.Sprintf(`{"metadata": {"annotations": {%s}, "labels": {"theirs": "there"}, "finalizers": ["example.com/theirs"]},
		"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}}`, strings.Join(keys, ", "))
	_, err := p.Admin().CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	must(t, err)
	t.Cleanup(func() {
		_, err := p.Admin().CoreV1().Nodes().Patch(context.WithoutCancel(t.Context()), node, types.MergePatchType,
			[]byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
		must(t, err)
	})
}

// protocolKeys are those of the protocol, each component's, the admin's and a gate's.
var protocolKeys = []string{
	"detector.ganglion.dev/sentinel", "locker.ganglion.dev/status", "drainer.ganglion.dev/status",
	"rebooter.ganglion.dev/status", "ganglion.dev/hold", "gate.ganglion.dev/backup", "kwok.x-k8s.io/node",
}

// leases makes a slot that is held and a claim, and one of somebody else.
func (p *prepared) leases(t *testing.T) {
	t.Helper()
	for _, l := range []struct{ namespace, name string }{
		{protocol.SystemNamespace, "default.0"}, {protocol.SystemNamespace, "drain.node-a"},
		{protocol.SystemNamespace, "somebody"}, {metav1.NamespaceDefault, "default.0"},
	} {
		_, err := p.Admin().CoordinationV1().Leases(l.namespace).Create(t.Context(), lease(l.name, own, 5), metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() {
			must(t, p.Admin().CoordinationV1().Leases(l.namespace).Delete(context.WithoutCancel(t.Context()), l.name, metav1.DeleteOptions{}))
		})
	}
}

// event makes an Event of somebody else.
func (p *prepared) event(t *testing.T) {
	t.Helper()
	events := p.Admin().CoreV1().Events(metav1.NamespaceDefault)
	_, err := events.Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: own},
		Source: corev1.EventSource{Component: "kubelet"},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, events.Delete(context.WithoutCancel(t.Context()), "theirs", metav1.DeleteOptions{})) })
}

// untilPoliciesAct waits until the API server has the last policy that was applied.
func (p *prepared) untilPoliciesAct(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		refused := 0
		for _, try := range []error{
			patchNode(own, `{"metadata": {"labels": {"a": "b"}}}`)(t.Context(), p.as(t, p.tokens["locker"])),
			putLease(protocol.SystemNamespace, lease("drain.x", own, 1))(t.Context(), p.as(t, p.tokens["locker"])),
			createEvent("ganglion-drainer", "Node", own)(t.Context(), p.as(t, p.tokens["locker"])),
			createJob(func(j *job) { delete(j.Labels, protocol.GrantKey) })(t.Context(), p.as(t, p.tokens["dispatcher"])),
			createPod(protocol.NodesNamespace, "detector")(t.Context(), p.Admin()),
		} {
			if apierrors.IsForbidden(try) || apierrors.IsInvalid(try) {
				refused++
			}
		}
		if refused == 5 {
			return
		}
	}
	t.Fatal("the policies do not act")
}

func (p *prepared) as(t *testing.T, token string) kubernetes.Interface {
	t.Helper()
	k, err := kubernetes.NewForConfig(p.ConfigFor(token))
	must(t, err)
	return k
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run tries everything of a list.
func (p *prepared) run(t *testing.T, token string, list []attempt) {
	t.Helper()
	k := p.as(t, token)
	for _, a := range list {
		err := a.do(t.Context(), k)
		switch {
		case a.want == allowed && err != nil:
			t.Errorf("%s: %v", a.name, err)
		case a.want == allowed:
		case err == nil:
			t.Errorf("%s: it is allowed", a.name)
		case !refusal(err) || !strings.Contains(err.Error(), a.want):
			t.Errorf("%s: want a refusal that says %q, got: %v", a.name, a.want, err)
		}
	}
	t.Logf("%d attempts", len(list))
}

// refusal tells whether the API server refused for reasons of rights: policies answer
// as their validations say, RBAC with 403.
func refusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

func TestC42WithTheDetectorsToken(t *testing.T) {
	p := prepare(t)
	const self = "the detector of Ganglion may not change"
	list := slices.Concat(nodeAttacks("detector", self), otherAttacks(map[string]string{
		"create an Event about its node":     allowed,
		"create an Event in another's name":  "Events of its own",
		"create an Event about a pod":        "about Nodes and windows",
		"create an Event about another node": "about its own Node alone",
		"create an Event about a window":     "about its own Node alone",
		"change an Event":                    byRBAC,
	}), []attempt{
		{"read its node", getNode(own), allowed},
		{"read another node", getNode(other), allowed}, // what anybody may know; see SECURITY
		{"list nodes", listNodes, byRBAC},
		{"set its key", patchAnnotation(own, "detector.ganglion.dev/sentinel", "x"), allowed},
		{"set a key of another detector", patchAnnotation(own, "detector.ganglion.dev/kernel", "x"), allowed},
		{"remove its key", removeAnnotation(own, "detector.ganglion.dev/sentinel"), allowed},
		{"set its key on another node", patchAnnotation(other, "detector.ganglion.dev/sentinel", "x"), "may change the Node that its pod runs on, and not node-b"},
		{"remove a need of another node", removeAnnotation(other, "detector.ganglion.dev/sentinel"), "bound to node-a"},
		{"cordon its node", cordon(own), "only the drainer does"},
		{"get a Lease", getLease(protocol.SystemNamespace, "default.0"), byRBAC},
		{"make a reboot Job", createJob(func(*job) {}), byRBAC},
	})
	p.run(t, p.tokens["detector"], list)

	t.Run("of no pod", func(t *testing.T) {
		p.run(t, p.unbound, []attempt{
			{"set its key", patchAnnotation(own, "detector.ganglion.dev/sentinel", "x"), "bound to no Node"},
			{"create an Event", createEvent("ganglion-detector", "Node", own), "about its own Node alone"},
		})
	})
}

// ofDeployments is what the daemons of Deployments may do beside what is theirs alone.
var ofDeployments = map[string]string{
	"create an Event about its node":     allowed,
	"create an Event in another's name":  "Events of its own",
	"create an Event about a pod":        "about Nodes and windows",
	"create an Event about another node": allowed,
	"create an Event about a window":     allowed,
	"change an Event":                    "Events of its own",
}

func with(a, b map[string]string) map[string]string {
	c := maps.Clone(a)
	maps.Copy(c, b)
	return c
}

func TestWithTheLockersToken(t *testing.T) {
	p := prepare(t)
	p.run(t, p.tokens["locker"], slices.Concat(nodeAttacks("locker", "the locker of Ganglion may not change"), otherAttacks(ofDeployments), []attempt{
		{"list nodes", listNodes, allowed},
		{"set its status", patchAnnotation(own, "locker.ganglion.dev/status", "x"), allowed},
		{"set its status on another node", patchAnnotation(other, "locker.ganglion.dev/status", "x"), allowed},
		{"remove a need", removeAnnotation(own, "detector.ganglion.dev/sentinel"), allowed},
		{"remove a need and set its status", patchNode(own, `{"metadata": {"annotations": {"detector.ganglion.dev/sentinel": null, "locker.ganglion.dev/status": "x"}}}`), allowed},
		{"make a need", patchAnnotation(other, "detector.ganglion.dev/sentinel", "x"), "may not change the annotations detector.ganglion.dev/sentinel"},
		{"change a need", patchAnnotation(own, "detector.ganglion.dev/sentinel", "x"), "may not change the annotations detector.ganglion.dev/sentinel"},
		{"remove the drainer's status", removeAnnotation(own, "drainer.ganglion.dev/status"), "may not change the annotations drainer.ganglion.dev/status"},
		{"remove a hold", removeAnnotation(own, "ganglion.dev/hold"), "may not change the annotations ganglion.dev/hold"},
		{"cordon", cordon(own), "only the drainer does"},
		{"make a slot", putLease(protocol.SystemNamespace, lease("nightly.1", own, 1)), allowed},
		{"make its leader's Lease", putLease(protocol.SystemNamespace, lease("locker", "me", 1)), allowed},
		{"make the Lease of the control plane", putLease(protocol.SystemNamespace, lease("control-plane", own, 1)), allowed},
		{"free a slot", changeLease("default.0", "", 5), allowed},
		{"renew a slot", changeLease("default.0", own, 5), allowed},
		{"give a slot on that is held", changeLease("default.0", other, 6), "freed before it goes to another node"},
		{"turn a slot back", changeLease("default.0", own, 4), "never falls"},
		{"make a claim", putLease(protocol.SystemNamespace, lease("drain.node-b", "me", 1)), "nothing to do with the Lease"},
		{"change a claim", changeLease("drain.node-a", "me", 1), "nothing to do with the Lease"},
		{"change a Lease of somebody else", changeLease("somebody", "me", 6), "nothing to do with the Lease"},
		{"delete a slot", deleteLease("default.0"), byRBAC},
		{"make a reboot Job", createJob(func(*job) {}), byRBAC},
		{"change the status of a window", windowStatus, allowed},
	}))
}

func TestWithTheDrainersToken(t *testing.T) {
	p := prepare(t)
	p.run(t, p.tokens["drainer"], slices.Concat(nodeAttacks("drainer", "the drainer of Ganglion may not change"), otherAttacks(with(ofDeployments, map[string]string{
		"list pods everywhere": allowed,
		"evict a pod":          allowed,
	})), []attempt{
		{"list nodes", listNodes, allowed},
		{"set its status", patchAnnotation(own, "drainer.ganglion.dev/status", "x"), allowed},
		{"cordon and set its status", patchNode(other, `{"spec": {"unschedulable": true}, "metadata": {"annotations": {"drainer.ganglion.dev/status": "x"}}}`), allowed},
		{"taint with its own taint", patchNode(own, `{"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}, {"key": "drainer.ganglion.dev/waiting", "effect": "PreferNoSchedule"}]}}`), allowed},
		{"taint harder", patchNode(own, `{"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}, {"key": "drainer.ganglion.dev/waiting", "effect": "NoExecute"}]}}`), "may not change these taints"},
		{"take a node from the load balancers", patchNode(own, `{"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}}`), allowed},
		{"set a need", patchAnnotation(own, "detector.ganglion.dev/sentinel", "x"), "may not change the annotations"},
		{"grant", patchAnnotation(own, "locker.ganglion.dev/status", "x"), "may not change the annotations"},
		{"claim a node", putLease(protocol.SystemNamespace, lease("drain.node-b", "me", 1)), allowed},
		{"end a claim", deleteLease("drain.node-a"), allowed},
		{"read a slot", getLease(protocol.SystemNamespace, "default.0"), allowed},
		{"make a slot", putLease(protocol.SystemNamespace, lease("nightly.1", own, 1)), "nothing to do with the Lease"},
		{"free a slot", changeLease("default.0", "", 5), "nothing to do with the Lease"},
		{"delete a slot", deleteLease("default.0"), "nothing to do with the Lease"},
		{"become the leader", putLease(protocol.SystemNamespace, lease("locker", "me", 1)), "nothing to do with the Lease"},
		{"make a reboot Job", createJob(func(*job) {}), byRBAC},
	}))
}

func TestWithTheDispatchersToken(t *testing.T) {
	p := prepare(t)
	p.run(t, p.tokens["dispatcher"], slices.Concat(nodeAttacks("dispatcher", "the dispatcher of Ganglion may not change"), otherAttacks(ofDeployments), []attempt{
		{"list nodes", listNodes, allowed},
		{"set its status", patchAnnotation(own, "rebooter.ganglion.dev/status", "x"), allowed},
		{"set its status on another node", patchAnnotation(other, "rebooter.ganglion.dev/status", "x"), allowed},
		{"cordon", cordon(own), "only the drainer does"},
		{"read a slot", getLease(protocol.SystemNamespace, "default.0"), allowed},
		{"make a slot", putLease(protocol.SystemNamespace, lease("nightly.1", own, 1)), byRBAC},
		{"make a reboot Job", createJob(func(*job) {}), allowed},
		{"make a privileged reboot Job", createJob(func(j *job) {
			j.Spec.Template.Spec.HostPID = true
			j.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}), allowed}, // procedures may ask for it; see SECURITY
		{"make a Job in another namespace", createJob(func(j *job) { j.Namespace = protocol.SystemNamespace }), byRBAC},
		{"make a Job in the namespace default", createJob(func(j *job) { j.Namespace = metav1.NamespaceDefault }), byRBAC},
		{"make a Job without the label managed-by", createJob(func(j *job) { delete(j.Labels, "app.kubernetes.io/managed-by") }), "carries the labels"},
		{"make a Job without a grant", createJob(func(j *job) { delete(j.Labels, protocol.GrantKey) }), "carries the labels"},
		{"make a Job of another window's grant", createJob(func(j *job) { j.Labels[protocol.WindowKey] = "nightly" }), "carries the labels"},
		{"make a Job for no node", createJob(func(j *job) { delete(j.Annotations, protocol.NodeKey) }), "carries the labels"},
		{"make a Job with the default token", createJob(func(j *job) { j.Spec.Template.Spec.AutomountServiceAccountToken = nil }), "has no service-account token"},
		{"make a Job with a token", createJob(func(j *job) { j.Spec.Template.Spec.AutomountServiceAccountToken = new(true) }), "has no service-account token"},
		{"make a Job with a projected token", createJob(func(j *job) {
			j.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
			}}}}
		}), "has no service-account token"},
		{"make a Job with an account of its own", createJob(func(j *job) {
			j.Spec.Template.Spec.AutomountServiceAccountToken = new(true)
			j.Spec.Template.Spec.ServiceAccountName = "bmc"
		}), allowed},
		{"make a Job as the detector", createJob(func(j *job) {
			j.Spec.Template.Spec.ServiceAccountName = "detector"
			j.Spec.Template.Spec.NodeName = other
		}), "may not run as the detector"},
		{"make a Job that is run again", createJob(func(j *job) { j.Spec.BackoffLimit = new(int32(3)) }), "runs one pod, once"},
		{"make a Job whose container is run again", createJob(func(j *job) { j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }), "runs one pod, once"},
		{"make a Job of many pods", createJob(func(j *job) {
			j.Spec.Parallelism, j.Spec.Completions = new(int32(5)), new(int32(5))
		}), "runs one pod, once"},
		{"change a procedure", createProcedure, byRBAC},
	}))

	t.Run("deleting Jobs", func(t *testing.T) {
		jobs := p.Admin().BatchV1().Jobs(protocol.NodesNamespace)
		for name, labels := range map[string]map[string]string{"ours": newJob().Labels, "theirs": nil} {
			j := newJob()
			j.Name, j.Labels = name, labels
			_, err := jobs.Create(t.Context(), j, metav1.CreateOptions{})
			must(t, err)
			t.Cleanup(func() {
				must(t, jobs.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
			})
		}
		p.run(t, p.tokens["dispatcher"], []attempt{
			{"delete a reboot Job", deleteJob("ours"), allowed},
			{"delete somebody's Job", deleteJob("theirs"), "carries the labels"},
			{"change a reboot Job", suspendJob("ours"), byRBAC},
		})
	})
}

// The policy of pods is everybody's: a Job's pod is made by the Job controller.
func TestOnlyTheDaemonSetsPodsRunAsTheDetector(t *testing.T) {
	p := prepare(t)
	err := createPod(protocol.NodesNamespace, "detector")(t.Context(), p.Admin())
	if err == nil || !refusal(err) || !strings.Contains(err.Error(), "only pods of the DaemonSet detector") {
		t.Errorf("a pod as the detector: %v", err)
	}
	must(t, createPod(protocol.NodesNamespace, "default")(t.Context(), p.Admin()))
}

// Pods in ganglion-system have to be restricted ones.
func TestPodSecurityRestrictsTheNamespaceOfTheDaemons(t *testing.T) {
	p := prepare(t)
	err := createPod(protocol.SystemNamespace, "default")(t.Context(), p.Admin())
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity \"restricted") {
		t.Errorf("a pod without a security context: %v", err)
	}
}

// A field that a later Kubernetes adds to NodeSpec has to be added to the policy.
func TestThePolicyOfNodesKnowsEveryFieldOfANodeSpec(t *testing.T) {
	root, err := cluster.Root()
	must(t, err)
	policy, err := os.ReadFile(filepath.Join(root, "deploy", "base", "policies", "nodes.yaml"))
	must(t, err)
	for i := range reflect.TypeFor[corev1.NodeSpec]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[corev1.NodeSpec]().Field(i).Tag.Get("json"), ",")
		for _, side := range []string{"object", "oldObject"} {
			if !regexp.MustCompile(`\b` + side + `\.spec\.\?` + name + `\b`).Match(policy) {
				t.Errorf("the policy does not look at %s.spec.%s", side, name)
			}
		}
	}
}

var errNotTried = errors.New("not tried")
