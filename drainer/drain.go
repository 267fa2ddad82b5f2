package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	kubectldrain "k8s.io/kubectl/pkg/drain"

	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

// policy is what a window says of draining and what follows from it.
type policy struct {
	rules.DrainPolicy
	preflight          bool
	gracePeriodSeconds int64
	podSelector        string
	skipTerminating    time.Duration
	deleteEmptyDirData bool
	procedure          string
}

// drain is a drain in progress: a watch of the node's pods, and what is known of
// each one's eviction.
type drain struct {
	node  string
	grant protocol.Grant
	// began is when the drain did, whichever replica began it.
	began time.Time
	pods  cache.Store
	stop  context.CancelFunc

	mu    sync.Mutex // guards claim, which a goroutine of its own renews
	claim *coordinationv1.Lease

	attempts   map[types.UID]*attempt
	daemonSets map[types.NamespacedName]*appsv1.DaemonSet
	// backed: the slot's Lease was seen to agree with the grant.
	backed bool
	// blocked is what was last told of what stands in the way.
	blocked string
}

// watchPods keeps d.pods current until ctx is done, and calls changed at each
// change. It returns once the pods that are there are known, or syncing is done.
func (d *drain) watchPods(ctx, syncing context.Context, client kubernetes.Interface, changed func()) error {
	onNode := fields.OneTermEqualSelector("spec.nodeName", d.node).String()
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewFilteredListWatchFromClient(client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
			func(o *metav1.ListOptions) { o.FieldSelector = onNode }),
		ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { changed() },
			UpdateFunc: func(any, any) { changed() },
			DeleteFunc: func(any) { changed() },
		},
	})
	go informer.RunWithContext(ctx)
	d.pods = store
	if !cache.WaitForCacheSync(syncing.Done(), informer.HasSynced) {
		return fmt.Errorf("listing the pods of node %s: %w", d.node, context.Cause(syncing))
	}
	return nil
}

// left are the pods that have still to leave the node, in the order in which they
// are evicted. kubectl's filters say which these are. The text says why the drain
// can never succeed, where it cannot. Fresh asks the API server, and not the watch.
func (d *drain) left(ctx context.Context, client kubernetes.Interface, p policy, fresh bool) ([]corev1.Pod, string, error) {
	view := &podView{Interface: client, drain: d, fresh: fresh}
	helper := &kubectldrain.Helper{
		Ctx:    ctx,
		Client: view,
		// A pod that nobody will make again is evicted all the same: the node
		// goes down with it or without it.
		Force:                           true,
		IgnoreAllDaemonSets:             true,
		DeleteEmptyDirData:              p.deleteEmptyDirData,
		PodSelector:                     p.podSelector,
		SkipWaitForDeleteTimeoutSeconds: int(p.skipTerminating / time.Second),
		AdditionalFilters:               []kubectldrain.PodFilter{skipFinished, skipOurs},
		Out:                             io.Discard,
		ErrOut:                          io.Discard,
	}
	list, errs := helper.GetPodsForDeletion(d.node)
	switch {
	case view.err != nil:
		return nil, "", fmt.Errorf("finding the pods to evict from node %s: %w", d.node, view.err)
	case list == nil:
		return nil, "", fmt.Errorf("finding the pods to evict from node %s: %v", d.node, errs)
	case len(errs) > 0:
		return nil, fmt.Sprint(errs[0]), nil
	}
	pods := list.Pods()
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods, "", nil
}

// skipFinished leaves alone what does not run any more.
func skipFinished(pod corev1.Pod) kubectldrain.PodDeleteStatus {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return kubectldrain.MakePodDeleteStatusSkip()
	}
	return kubectldrain.MakePodDeleteStatusOkay()
}

// skipOurs leaves Ganglion's own Deployments alone. They hold nothing that could
// be lost, and in a cluster of one node there is nowhere else to go for what has
// to see the cycle through.
func skipOurs(pod corev1.Pod) kubectldrain.PodDeleteStatus {
	if pod.Namespace == protocol.SystemNamespace && pod.Labels["app.kubernetes.io/name"] == "ganglion" {
		return kubectldrain.MakePodDeleteStatusSkip()
	}
	return kubectldrain.MakePodDeleteStatusOkay()
}

// podView is the client that kubectl's filters are given: pods come from the
// drain's watch, unless they are to be fresh, and a DaemonSet is asked for once.
type podView struct {
	kubernetes.Interface
	drain *drain
	fresh bool
	err   error
}

func (v *podView) CoreV1() typedcorev1.CoreV1Interface {
	return podViewCore{v.Interface.CoreV1(), v}
}

func (v *podView) AppsV1() typedappsv1.AppsV1Interface {
	return podViewApps{v.Interface.AppsV1(), v}
}

type podViewCore struct {
	typedcorev1.CoreV1Interface
	view *podView
}

func (c podViewCore) Pods(namespace string) typedcorev1.PodInterface {
	return podViewPods{c.CoreV1Interface.Pods(namespace), c.view}
}

type podViewPods struct {
	typedcorev1.PodInterface
	view *podView
}

func (p podViewPods) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	if p.view.fresh {
		list, err := p.PodInterface.List(ctx, options)
		if err != nil {
			p.view.err = err
		}
		return list, err
	}
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil {
		p.view.err = err
		return nil, err
	}
	list := &corev1.PodList{}
	for _, object := range p.view.drain.pods.List() {
		if pod := object.(*corev1.Pod); selector.Matches(labels.Set(pod.Labels)) {
			list.Items = append(list.Items, *pod)
		}
	}
	return list, nil
}

type podViewApps struct {
	typedappsv1.AppsV1Interface
	view *podView
}

func (a podViewApps) DaemonSets(namespace string) typedappsv1.DaemonSetInterface {
	return podViewDaemonSets{a.AppsV1Interface.DaemonSets(namespace), namespace, a.view}
}

type podViewDaemonSets struct {
	typedappsv1.DaemonSetInterface
	namespace string
	view      *podView
}

func (d podViewDaemonSets) Get(ctx context.Context, name string, options metav1.GetOptions) (*appsv1.DaemonSet, error) {
	key := types.NamespacedName{Namespace: d.namespace, Name: name}
	if set := d.view.drain.daemonSets[key]; set != nil {
		return set, nil
	}
	set, err := d.DaemonSetInterface.Get(ctx, name, options)
	if err != nil {
		if !apierrors.IsNotFound(err) {
			d.view.err = err
		}
		return nil, err
	}
	d.view.drain.daemonSets[key] = set
	return set, nil
}
