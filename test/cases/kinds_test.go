package cases

import (
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ganglion.dev/shared/protocol"
)

// newSlot is a slot's Lease that nobody has taken yet.
func newSlot(name string) *coordinationv1.Lease {
	slot, err := protocol.ParseSlot(name)
	if err != nil {
		panic(err)
	}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: protocol.SystemNamespace, Labels: map[string]string{protocol.WindowKey: slot.Window},
	}}
}

// jobs are the reboot Jobs that are there.
func (e *env) jobs() []batchv1.Job {
	e.t.Helper()
	list, err := e.Cluster.Admin().BatchV1().Jobs(protocol.NodesNamespace).List(e.ctx, metav1.ListOptions{LabelSelector: protocol.GrantKey})
	must(e.t, err)
	return list.Items
}
