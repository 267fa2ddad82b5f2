package rules

import (
	"fmt"
	"strings"
	"time"

	"ganglion.dev/shared/protocol"
)

// DispatcherKind names what a node asks of the dispatcher.
type DispatcherKind string

// What the dispatcher can have to do.
const (
	// Wait: nothing for now.
	Wait DispatcherKind = ""
	// Intend: say `rebooting`, before anything is done.
	Intend DispatcherKind = "intend"
	// MakeJob creates the Job of a grant whose intent is written.
	MakeJob DispatcherKind = "make-job"
	// Prove: say `rebooted`.
	Prove DispatcherKind = "prove"
	// StopJob deletes the Job in the foreground.
	StopJob DispatcherKind = "stop-job"
	// Fail: say `failed`.
	Fail DispatcherKind = "fail"
)

// JobState is what is known of the Job of a grant.
type JobState string

// The states of a Job.
const (
	JobAbsent    JobState = "absent"
	JobActive    JobState = "active" // it, or one of its pods, may still act
	JobSucceeded JobState = "succeeded"
	JobFailed    JobState = "failed"
	JobForeign   JobState = "foreign" // something of that name that is not ours
)

// DispatcherView is what the dispatcher decides from.
type DispatcherView struct {
	Node *protocol.Node
	// Unusable says why no Job can be made from the window's procedure, empty
	// where one can.
	Unusable string
	// JobSucceeds: the procedure is complete when its Job is, without a reboot.
	JobSucceeds bool
	Timeout     time.Duration
	Job         JobState
	// JobDeleting: the Job is on its way out.
	JobDeleting bool
	// JobMessage is what the Job's pod said last.
	JobMessage string
	Now        time.Time
}

// DispatcherStep is what to do.
type DispatcherStep struct {
	Kind   DispatcherKind
	Grant  protocol.Grant
	Status protocol.RebooterStatus // of Intend, Prove and Fail
	// Backed: only where the slot's Lease backs the grant.
	Backed bool
	// Ended: only where the API server says that the Job and its pods have ended. A
	// pod that started late would reboot a node that is full again.
	Ended bool
	// Problem is what is contradictory, and leads to no action.
	Problem string
	// Recheck is when time alone may change the decision; 0: never.
	Recheck time.Duration
}

// Decide tells what the dispatcher has to do on a node.
func (v *DispatcherView) Decide() DispatcherStep {
	if v.Node.Err != nil {
		return DispatcherStep{Problem: v.Node.Err.Error()}
	}
	s := v.Node.State
	if s.Rebooter.Step == protocol.Rebooting {
		return v.rebooting(s.Rebooter)
	}
	if v.Node.Phase() != protocol.PhaseDrained || s.Leftover() {
		return DispatcherStep{}
	}
	g := s.Current()
	step := DispatcherStep{Kind: Intend, Grant: g, Backed: true}
	switch boot := v.Node.BootID; {
	case v.Unusable != "":
		step.Kind = Fail
		step.Status = protocol.RebooterStatus{Step: protocol.Failed, Grant: g, Reason: v.Unusable}
	case !v.Node.Unschedulable:
		return DispatcherStep{} // the drainer begins again
	case boot == "" || strings.ContainsAny(boot, " \t\n"):
		return DispatcherStep{Problem: fmt.Sprintf("the node's boot id is %q", boot)}
	default:
		step.Status = protocol.RebooterStatus{
			Step: protocol.Rebooting, Grant: g, BootID: boot, At: v.Now.UTC().Truncate(time.Second),
		}
	}
	return step
}

// rebooting decides on a node whose reboot may begin at any time, or has begun.
func (v *DispatcherView) rebooting(r protocol.RebooterStatus) DispatcherStep {
	fail := func(format string, args ...any) DispatcherStep {
		return DispatcherStep{Kind: Fail, Grant: r.Grant, Ended: true, Status: protocol.RebooterStatus{
			Step: protocol.Failed, Grant: r.Grant, Reason: fmt.Sprintf(format, args...) + v.said(),
		}}
	}
	proved := DispatcherStep{Kind: Prove, Grant: r.Grant, Status: protocol.RebooterStatus{
		Step: protocol.Rebooted, Grant: r.Grant, Done: v.JobSucceeds,
	}}
	if v.Job == JobForeign {
		// Its events do not say which node it stands in the way of.
		return DispatcherStep{
			Grant: r.Grant, Recheck: 10 * time.Second,
			Problem: "a Job of that name is there that was not made for this grant" + v.said(),
		}
	}
	if v.JobSucceeds {
		switch {
		case v.Job == JobSucceeded && v.Node.Ready:
			return proved
		case v.Job == JobFailed && v.Node.Ready:
			return fail("the Job failed")
		}
	} else if v.Node.BootID != "" && v.Node.BootID != r.BootID {
		// Ready comes in a later write of the kubelet than the boot id.
		if v.Node.Ready {
			return proved
		}
		return DispatcherStep{}
	}
	if left := r.At.Add(v.Timeout).Sub(v.Now); left > 0 {
		step := DispatcherStep{Grant: r.Grant, Recheck: left}
		if v.Job != JobAbsent {
			return step
		}
		if v.Unusable != "" {
			return fail("%s", v.Unusable)
		}
		// A Job that is made late, by a dispatcher that was held up or whose clock is
		// slow, must not meet a node of which another has said `failed` meanwhile. So
		// none is made in the second half of the time.
		if half := left - v.Timeout/2; half > 0 {
			step.Kind, step.Backed = MakeJob, true
		}
		return step
	}
	// Time is up. A node that is not there keeps its slot; one that is there,
	// under its old boot id, did not reboot, and must not do so later either.
	switch {
	case !v.Node.Ready:
		return DispatcherStep{}
	case v.Job == JobActive && v.JobDeleting:
		return DispatcherStep{}
	case v.Job == JobActive:
		return DispatcherStep{Kind: StopJob, Grant: r.Grant}
	}
	return fail("not rebooted within %s", v.Timeout)
}

func (v *DispatcherView) said() string {
	if v.JobMessage == "" {
		return ""
	}
	return ": " + v.JobMessage
}
