package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DefaultRebootTimeout is the default of spec.reboot.timeout.
const DefaultRebootTimeout = 15 * time.Minute

// Default fills in what the CRD's schema would, for objects that got in without it.
func (w *NodesMaintenanceWindow) Default() {
	s := &w.Spec
	defaultTo(&s.Overrun, OverrunAbort)
	defaultTo(&s.MinRebootInterval, metav1.Duration{Duration: time.Hour})
	if s.Serialization.MaxConcurrent == (intstr.IntOrString{}) {
		s.Serialization.MaxConcurrent = intstr.FromInt32(1)
	}
	defaultTo(&s.Serialization.Order, "OldestNeedFirst")
	for i := range s.Blockers.Prometheus {
		defaultTo(&s.Blockers.Prometheus[i].Timeout, metav1.Duration{Duration: 10 * time.Second})
	}
	defaultTo(&s.Gates.Timeout, metav1.Duration{Duration: 30 * time.Minute})
	defaultTo(&s.Drain.Timeout, metav1.Duration{Duration: 30 * time.Minute})
	defaultTo(&s.Drain.OnTimeout, DrainAbort)
	if s.Drain.Preflight == nil {
		s.Drain.Preflight = new(true)
	}
	if s.Drain.GracePeriodSeconds == nil {
		s.Drain.GracePeriodSeconds = new(int64(-1))
	}
	if s.Drain.DeleteEmptyDirData == nil {
		s.Drain.DeleteEmptyDirData = new(true)
	}
	defaultTo(&s.Reboot.Procedure, "default")
	defaultTo(&s.Reboot.Timeout, metav1.Duration{Duration: DefaultRebootTimeout})
	defaultTo(&s.Reboot.OnTimeout, RebootHold)
}

// Default fills in what the CRD's schema would.
func (p *RebootProcedure) Default() {
	defaultTo(&p.Spec.Placement, PlacementNode)
	defaultTo(&p.Spec.Completion, CompletionBootIDChanged)
}

func defaultTo[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
