package main

import (
	"errors"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ganglion.dev/shared/api/v1alpha1"
	"ganglion.dev/shared/rules"
)

// windowOf is what the rules need to know of a window. One that cannot be obeyed
// as it is, is invalid as a whole.
func windowOf(w *v1alpha1.NodesMaintenanceWindow) *rules.Window {
	rule := &rules.Window{Name: w.Name, Priority: w.Spec.Priority, Suspended: w.Spec.Suspended}
	var unusable *v1alpha1.Unusable
	if errors.As(v1alpha1.Usable(w), &unusable) {
		rule.Invalid = unusable.Message
		return rule
	}
	selector, err := metav1.LabelSelectorAsSelector(&w.Spec.NodeSelector)
	if err != nil {
		rule.Invalid = "spec.nodeSelector: " + err.Error()
		return rule
	}
	s := w.Spec.Serialization
	rule.Selector = selector
	rule.Cap = func(selected int) int { return maxConcurrent(s.MaxConcurrent, selected) }
	rule.IgnoreUnavailable = s.IgnoreUnavailable
	rule.Settle = s.Settle.Duration
	rule.Order = rules.Order(s.Order)
	rule.MinRebootInterval = w.Spec.MinRebootInterval.Duration
	rule.RebootTimeout = w.Spec.Reboot.Timeout.Duration
	return rule
}

// maxConcurrent is a count, or a percentage of the selected nodes: rounded down,
// but at least 1, or a small cluster would never be served.
func maxConcurrent(m intstr.IntOrString, selected int) int {
	if m.Type == intstr.Int {
		return int(m.IntVal)
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(m.StrVal, "%"))
	if err != nil {
		return 1 // such a window is invalid, and grants nothing
	}
	return max(selected*percent/100, 1)
}
