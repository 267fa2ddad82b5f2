package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"ganglion.dev/shared/kube"
	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

// A watch delivers while a decision is being carried out. What it brings must not lend
// its resourceVersion to a decision that was made without it: another locker's slot
// would be taken from it.
func TestALeaseThatHasChangedSinceTheDecisionIsNotWritten(t *testing.T) {
	turn, holder := int32(1), ""
	decidedOn := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: "w.0", Namespace: protocol.SystemNamespace, UID: "u", ResourceVersion: "10",
			Labels: map[string]string{protocol.WindowKey: "w"},
		},
		Spec: coordinationv1.LeaseSpec{LeaseTransitions: &turn, HolderIdentity: &holder},
	}
	taken := decidedOn.DeepCopy()
	taken.ResourceVersion, *taken.Spec.LeaseTransitions, *taken.Spec.HolderIdentity = "11", 2, "b"
	taken.Annotations = map[string]string{protocol.NodeUIDKey: "ub"}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "ua", ResourceVersion: "5"}}
	client := fake.NewClientset(taken.DeepCopy(), n)
	l := &locker{
		log: zap.NewNop(), client: client, recorder: record.NewFakeRecorder(10), now: time.Now,
		metrics: newMetrics(prometheus.NewRegistry()),
		nodes:   kube.NewTracker(kube.Node, func(metav1.Object) {}),
		leases: kube.NewTracker(func(lease *coordinationv1.Lease) slotLease { return slotLease{kube.Lease(lease), lease} },
			func(metav1.Object) {}),
	}
	l.leases.Handler().OnAdd(taken, false)
	err := l.act(context.Background(), &rules.LockerAction{
		Kind: rules.Take, Lease: kube.Lease(decidedOn), Node: kube.Node(n),
		Grant: protocol.Grant{Slot: protocol.Slot{Window: "w"}, Turn: 2},
	})
	if err == nil || !strings.Contains(err.Error(), "has changed since") {
		t.Errorf("%v", err)
	}
	now, err := client.CoordinationV1().Leases(protocol.SystemNamespace).Get(t.Context(), "w.0", metav1.GetOptions{})
	if err != nil || *now.Spec.HolderIdentity != "b" {
		t.Errorf("the slot is held by %q, %v", *now.Spec.HolderIdentity, err)
	}
}
