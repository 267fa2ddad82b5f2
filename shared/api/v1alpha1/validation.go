package v1alpha1

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxWindowName is the longest name of a window, in bytes.
const MaxWindowName = 40

var (
	percent  = regexp.MustCompile(`^([1-9][0-9]?|100)%$`)
	clock    = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)
	weekdays = []Day{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}
)

// Validate gives every mistake, by the same rules as the CRD's schema and some
// that a schema cannot express. It expects the defaults to be filled in.
func (w *NodesMaintenanceWindow) Validate() field.ErrorList {
	var errs field.ErrorList
	name := field.NewPath("metadata", "name")
	if problems := validation.IsDNS1123Label(w.Name); len(problems) > 0 || len(w.Name) > MaxWindowName {
		errs = append(errs, field.Invalid(name, w.Name, fmt.Sprintf("want a DNS label of at most %d characters", MaxWindowName)))
	}
	if w.Name == "drain" {
		errs = append(errs, field.Invalid(name, w.Name, "the Leases by which drainers claim nodes are called drain.<node>"))
	}
	s, spec := &w.Spec, field.NewPath("spec")
	errs = append(errs, selector(&s.NodeSelector, spec.Child("nodeSelector"))...)
	for i := range s.Schedules {
		errs = append(errs, s.Schedules[i].validate(spec.Child("schedules").Index(i))...)
	}
	for i := range s.Freezes {
		errs = append(errs, s.Freezes[i].validate(spec.Child("freezes").Index(i))...)
	}
	errs = append(errs, atLeast(s.LatestStart, 0, spec.Child("latestStart"))...)
	errs = append(errs, oneOf(s.Overrun, spec.Child("overrun"), OverrunAbort, OverrunFinish)...)
	errs = append(errs, s.Serialization.validate(spec.Child("serialization"))...)
	errs = append(errs, atLeast(s.MinRebootInterval, 0, spec.Child("minRebootInterval"))...)
	errs = append(errs, s.Blockers.validate(spec.Child("blockers"))...)
	errs = append(errs, s.Gates.validate(spec.Child("gates"))...)
	errs = append(errs, s.Drain.validate(spec.Child("drain"))...)
	errs = append(errs, s.Reboot.validate(spec.Child("reboot"))...)
	return errs
}

func (s *Schedule) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	forms := 0
	for _, is := range []bool{s.Cron != "", s.Start != nil, len(s.Days) > 0} {
		if is {
			forms++
		}
	}
	if forms != 1 {
		return append(errs, field.Invalid(at, forms, "exactly one of cron, start and days says when it opens"))
	}
	if s.Cron != "" && len(strings.Fields(s.Cron)) != 5 {
		errs = append(errs, field.Invalid(at.Child("cron"), s.Cron, "want five fields"))
	}
	if len(s.Days) > 0 {
		for i, day := range s.Days {
			errs = append(errs, oneOf(day, at.Child("days").Index(i), weekdays...)...)
		}
		for child, text := range map[string]string{"startTime": s.StartTime, "endTime": s.EndTime} {
			if !clock.MatchString(text) {
				errs = append(errs, field.Invalid(at.Child(child), text, "want HH:MM"))
			}
		}
		if s.Duration != nil {
			errs = append(errs, field.Forbidden(at.Child("duration"), "does not go with days, which has endTime"))
		}
	} else {
		most := 168 * time.Hour
		if s.Start != nil {
			most = 366 * 24 * time.Hour
		}
		switch {
		case s.Duration == nil:
			errs = append(errs, field.Required(at.Child("duration"), "goes with cron and with start"))
		case s.Duration.Duration < time.Minute || s.Duration.Duration > most:
			errs = append(errs, field.Invalid(at.Child("duration"), s.Duration.Duration.String(), fmt.Sprintf("want from 1m to %s", most)))
		}
		if s.StartTime != "" || s.EndTime != "" {
			errs = append(errs, field.Forbidden(at.Child("startTime"), "startTime and endTime go with days only"))
		}
	}
	if _, err := time.LoadLocation(s.TimeZone); err != nil || s.TimeZone == "Local" {
		errs = append(errs, field.Invalid(at.Child("timeZone"), s.TimeZone, "want an IANA time zone"))
	}
	if s.Start != nil && s.TimeZone != "" {
		errs = append(errs, field.Forbidden(at.Child("timeZone"), "does not go with start, which has its own"))
	}
	return errs
}

func (s *Serialization) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	most := at.Child("maxConcurrent")
	switch m := s.MaxConcurrent; {
	case m.Type == intstr.Int && m.IntVal < 1:
		errs = append(errs, field.Invalid(most, m.IntVal, "want 1 or more"))
	case m.Type == intstr.String && !percent.MatchString(m.StrVal):
		errs = append(errs, field.Invalid(most, m.StrVal, "want a count, or 1% to 100%"))
	}
	if s.TopologyKey != "" {
		for _, problem := range validation.IsQualifiedName(s.TopologyKey) {
			errs = append(errs, field.Invalid(at.Child("topologyKey"), s.TopologyKey, problem))
		}
	}
	errs = append(errs, atLeast(s.Settle, 0, at.Child("settle"))...)
	if s.MaxFailures < 0 {
		errs = append(errs, field.Invalid(at.Child("maxFailures"), s.MaxFailures, "must not be negative"))
	}
	return append(errs, oneOf(s.Order, at.Child("order"), "OldestNeedFirst", "Name")...)
}

func (b *Blockers) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range b.Prometheus {
		at := at.Child("prometheus").Index(i)
		if !strings.HasPrefix(p.URL, "http://") && !strings.HasPrefix(p.URL, "https://") {
			errs = append(errs, field.Invalid(at.Child("url"), p.URL, "want an http or https URL"))
		}
		if p.Query != "" && (p.IgnoreAlerts != "" || p.OnlyAlerts != "" || p.IncludePending) {
			errs = append(errs, field.Forbidden(at.Child("query"), "does not go with ignoreAlerts, onlyAlerts or includePending"))
		}
		if p.IgnoreAlerts != "" && p.OnlyAlerts != "" {
			errs = append(errs, field.Forbidden(at.Child("ignoreAlerts"), "does not go with onlyAlerts"))
		}
		for child, text := range map[string]string{"ignoreAlerts": p.IgnoreAlerts, "onlyAlerts": p.OnlyAlerts} {
			if _, err := regexp.Compile(text); err != nil {
				errs = append(errs, field.Invalid(at.Child(child), text, err.Error()))
			}
		}
		errs = append(errs, atLeast(p.Timeout, 1, at.Child("timeout"))...)
	}
	for i := range b.Pods {
		errs = append(errs, selector(&b.Pods[i].Selector, at.Child("pods").Index(i).Child("selector"))...)
	}
	for i := range b.Nodes {
		errs = append(errs, selector(&b.Nodes[i].Selector, at.Child("nodes").Index(i).Child("selector"))...)
	}
	return errs
}

func (g *Gates) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for child, names := range map[string][]GateName{
		"beforeDrain": g.BeforeDrain, "beforeReboot": g.BeforeReboot, "afterReboot": g.AfterReboot,
	} {
		for i, name := range names {
			at := at.Child(child).Index(i)
			for _, problem := range validation.IsQualifiedName("gate.ganglion.dev/" + string(name)) {
				errs = append(errs, field.Invalid(at, string(name), problem))
			}
			if slices.Contains(names[:i], name) {
				errs = append(errs, field.Duplicate(at, string(name)))
			}
		}
	}
	return append(errs, atLeast(g.Timeout, 1, at.Child("timeout"))...)
}

func (d *Drain) validate(at *field.Path) field.ErrorList {
	errs := atLeast(d.Timeout, 1, at.Child("timeout"))
	errs = append(errs, oneOf(d.OnTimeout, at.Child("onTimeout"), DrainAbort, DrainDelete, DrainProceed)...)
	if g := d.GracePeriodSeconds; g != nil && *g < -1 {
		errs = append(errs, field.Invalid(at.Child("gracePeriodSeconds"), *g, "want -1 or more"))
	}
	if d.PodSelector != nil {
		errs = append(errs, selector(d.PodSelector, at.Child("podSelector"))...)
	}
	errs = append(errs, atLeast(d.SkipWaitForDeleteTimeout, 0, at.Child("skipWaitForDeleteTimeout"))...)
	return append(errs, atLeast(d.LoadBalancerDelay, 0, at.Child("loadBalancerDelay"))...)
}

func (r *Reboot) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Subdomain(r.Procedure) {
		errs = append(errs, field.Invalid(at.Child("procedure"), r.Procedure, problem))
	}
	errs = append(errs, atLeast(r.Timeout, 1, at.Child("timeout"))...)
	return append(errs, oneOf(r.OnTimeout, at.Child("onTimeout"), RebootHold, RebootRelease)...)
}

// NotImplemented lists the fields that are set to what no daemon does yet. A
// window with any is never half obeyed: it grants nothing.
func (w *NodesMaintenanceWindow) NotImplemented() []string {
	s := &w.Spec
	var fields []string
	for _, f := range []struct {
		name string
		used bool
	}{
		{"spec.schedules", len(s.Schedules) > 0},
		{"spec.freezes", len(s.Freezes) > 0},
		{"spec.latestStart", s.LatestStart.Duration != 0},
		{"spec.overrun", s.Overrun == OverrunFinish},
		{"spec.serialization.topologyKey", s.Serialization.TopologyKey != ""},
		{"spec.serialization.maxFailures", s.Serialization.MaxFailures != 0},
		{"spec.blockers.prometheus", len(s.Blockers.Prometheus) > 0},
		{"spec.blockers.pods", len(s.Blockers.Pods) > 0},
		{"spec.blockers.nodes", len(s.Blockers.Nodes) > 0},
		{"spec.gates.beforeDrain", len(s.Gates.BeforeDrain) > 0},
		{"spec.gates.beforeReboot", len(s.Gates.BeforeReboot) > 0},
		{"spec.gates.afterReboot", len(s.Gates.AfterReboot) > 0},
		{"spec.drain.onTimeout", s.Drain.OnTimeout == DrainDelete || s.Drain.OnTimeout == DrainProceed},
		{"spec.drain.loadBalancerDelay", s.Drain.LoadBalancerDelay.Duration != 0},
		{"spec.reboot.onTimeout", s.Reboot.OnTimeout == RebootRelease},
	} {
		if f.used {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// Unusable says why a window grants nothing: a CamelCase reason and a sentence.
type Unusable struct{ Reason, Message string }

// Error implements error.
func (u *Unusable) Error() string { return u.Message }

// Usable tells whether a window can be obeyed as it is; the error is an Unusable.
// It expects the defaults to be filled in.
func Usable(w *NodesMaintenanceWindow) error {
	if errs := w.Validate(); len(errs) > 0 {
		return &Unusable{"Invalid", errs.ToAggregate().Error()}
	}
	if fields := w.NotImplemented(); len(fields) > 0 {
		return &Unusable{"NotImplemented", "not implemented yet: " + strings.Join(fields, ", ")}
	}
	return nil
}

// Validate gives every mistake. It expects the defaults to be filled in.
func (p *RebootProcedure) Validate() field.ErrorList {
	spec := field.NewPath("spec")
	errs := oneOf(p.Spec.Placement, spec.Child("placement"), PlacementNode, PlacementAnywhere)
	errs = append(errs, oneOf(p.Spec.Completion, spec.Child("completion"), CompletionBootIDChanged, CompletionJobSucceeded)...)
	job, at := &p.Spec.JobTemplate.Spec, spec.Child("jobTemplate", "spec")
	pod, podAt := &job.Template.Spec, at.Child("template", "spec")
	if len(pod.Containers) == 0 {
		errs = append(errs, field.Required(podAt.Child("containers"), "at least one is required"))
	}
	if pod.RestartPolicy != "" && pod.RestartPolicy != corev1.RestartPolicyNever {
		errs = append(errs, field.Invalid(podAt.Child("restartPolicy"), pod.RestartPolicy, "must be Never: a reboot is not tried twice"))
	}
	for _, f := range []struct {
		name  string
		value *int32
		want  int32
	}{{"backoffLimit", job.BackoffLimit, 0}, {"parallelism", job.Parallelism, 1}, {"completions", job.Completions, 1}} {
		if f.value != nil && *f.value != f.want {
			errs = append(errs, field.Invalid(at.Child(f.name), *f.value, fmt.Sprintf("must be %d", f.want)))
		}
	}
	if job.Suspend != nil && *job.Suspend {
		errs = append(errs, field.Invalid(at.Child("suspend"), true, "must not be true: nobody would start it"))
	}
	return errs
}

func selector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
}

func atLeast(d metav1.Duration, least time.Duration, at *field.Path) field.ErrorList {
	if d.Duration >= least {
		return nil
	}
	want := "must not be negative"
	if least > 0 {
		want = "must be more than 0"
	}
	return field.ErrorList{field.Invalid(at, d.Duration.String(), want)}
}

func oneOf[T ~string](value T, at *field.Path, values ...T) field.ErrorList {
	if slices.Contains(values, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, values)}
}
