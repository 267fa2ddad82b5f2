package protocol

import (
	"fmt"
	"strings"
	"time"
)

// The steps that a component's status can tell of.
const (
	Granted  = "granted"
	Revoked  = "revoked"
	Released = "released"

	Cordoned = "cordoned"
	Drained  = "drained"
	Restored = "restored"

	Rebooting = "rebooting"
	Rebooted  = "rebooted"

	Failed = "failed"
)

// How a cycle ended, in a LockerStatus.
const (
	// OutcomeRebooted: the node has a new boot id and is Ready.
	OutcomeRebooted = "rebooted"
	// OutcomeDone: the procedure needed no reboot, and its Job succeeded.
	OutcomeDone = "done"
	// OutcomeDrainFailed: the node was not drained, and not rebooted.
	OutcomeDrainFailed = "drain-failed"
	// OutcomeRebootFailed: the node was drained, and did not reboot.
	OutcomeRebootFailed = "reboot-failed"
	// OutcomeRevoked: the locker took the grant back before the reboot began.
	OutcomeRevoked = "revoked"
)

// maxReason bounds the reasons that are put into annotations, in bytes.
const maxReason = 512

// LockerStatus is the value of LockerKey:
//
//	granted <grant>
//	revoked <grant> <reason>
//	released <grant> <RFC3339> outcome=<outcome> [failures=<n>]
type LockerStatus struct {
	Step   string
	Grant  Grant
	Reason string // of Revoked

	// Of Released.
	At       time.Time // whole seconds
	Outcome  string
	Failures int // consecutive failed cycles of the node, this one included
}

// String renders the value of the annotation.
func (s LockerStatus) String() string {
	switch s.Step {
	case Revoked:
		return Revoked + " " + s.Grant.String() + reason(s.Reason)
	case Released:
		text := fmt.Sprintf("%s %s %s outcome=%s", Released, s.Grant, stamp(s.At), s.Outcome)
		if s.Failures > 0 {
			text += fmt.Sprintf(" failures=%d", s.Failures)
		}
		return text
	}
	return s.Step + " " + s.Grant.String()
}

// ParseLockerStatus reads a value of LockerKey.
func ParseLockerStatus(text string) (LockerStatus, error) {
	f := fields(text)
	s := LockerStatus{Step: f.word()}
	switch s.Step {
	case Granted:
		s.Grant = f.grant()
		f.end()
	case Revoked:
		s.Grant = f.grant()
		s.Reason = f.rest("a reason")
	case Released:
		s.Grant = f.grant()
		s.At = f.time()
		s.Outcome = f.value("outcome")
		switch s.Outcome {
		case OutcomeRebooted, OutcomeDone, OutcomeDrainFailed, OutcomeRebootFailed, OutcomeRevoked:
		default:
			f.fail("outcome %q is none of %s, %s, %s, %s, %s", s.Outcome,
				OutcomeRebooted, OutcomeDone, OutcomeDrainFailed, OutcomeRebootFailed, OutcomeRevoked)
		}
		if f.more() {
			s.Failures = f.number("failures")
		}
		f.end()
	default:
		f.fail("%q is none of %s, %s, %s", s.Step, Granted, Revoked, Released)
	}
	if f.err != nil {
		return LockerStatus{}, f.err
	}
	return s, nil
}

// DrainerStatus is the value of DrainerKey:
//
//	cordoned <grant> [foreign]
//	drained <grant> [foreign]
//	restored <grant>
//	failed <grant> <reason>
type DrainerStatus struct {
	Step  string
	Grant Grant
	// Foreign: somebody else had cordoned the node before, so it stays cordoned
	// when the cycle ends.
	Foreign bool
	Reason  string // of Failed
}

// String renders the value of the annotation.
func (s DrainerStatus) String() string {
	text := s.Step + " " + s.Grant.String()
	switch {
	case s.Step == Failed:
		text += reason(s.Reason)
	case s.Foreign:
		text += " foreign"
	}
	return text
}

// ParseDrainerStatus reads a value of DrainerKey.
func ParseDrainerStatus(text string) (DrainerStatus, error) {
	f := fields(text)
	s := DrainerStatus{Step: f.word()}
	switch s.Step {
	case Cordoned, Drained:
		s.Grant = f.grant()
		s.Foreign = f.flag("foreign")
		f.end()
	case Restored:
		s.Grant = f.grant()
		f.end()
	case Failed:
		s.Grant = f.grant()
		s.Reason = f.rest("a reason")
	default:
		f.fail("%q is none of %s, %s, %s, %s", s.Step, Cordoned, Drained, Restored, Failed)
	}
	if f.err != nil {
		return DrainerStatus{}, f.err
	}
	return s, nil
}

// RebooterStatus is the value of RebooterKey:
//
//	rebooting <grant> <boot id before> <RFC3339>
//	rebooted <grant> [done]
//	failed <grant> <reason>
type RebooterStatus struct {
	Step   string
	Grant  Grant
	BootID string    // of Rebooting: the node's boot id before
	At     time.Time // of Rebooting: when the intent was written, whole seconds
	// Done, of Rebooted: the procedure asks for no reboot, and its Job succeeded.
	Done   bool
	Reason string // of Failed
}

// String renders the value of the annotation.
func (s RebooterStatus) String() string {
	text := s.Step + " " + s.Grant.String()
	switch s.Step {
	case Rebooting:
		text += " " + s.BootID + " " + stamp(s.At)
	case Rebooted:
		if s.Done {
			text += " done"
		}
	case Failed:
		text += reason(s.Reason)
	}
	return text
}

// ParseRebooterStatus reads a value of RebooterKey.
func ParseRebooterStatus(text string) (RebooterStatus, error) {
	f := fields(text)
	s := RebooterStatus{Step: f.word()}
	switch s.Step {
	case Rebooting:
		s.Grant = f.grant()
		s.BootID = f.word()
		s.At = f.time()
		f.end()
	case Rebooted:
		s.Grant = f.grant()
		s.Done = f.flag("done")
		f.end()
	case Failed:
		s.Grant = f.grant()
		s.Reason = f.rest("a reason")
	default:
		f.fail("%q is none of %s, %s, %s", s.Step, Rebooting, Rebooted, Failed)
	}
	if f.err != nil {
		return RebooterStatus{}, f.err
	}
	return s, nil
}

// Need is what our detector writes as the value of its key. Other detectors
// write what they like.
type Need struct {
	Since  time.Time // whole seconds
	BootID string    // the boot that needs the reboot
	Reason string
}

// String is <RFC3339 since> boot=<boot id> <reason>.
func (n Need) String() string {
	return stamp(n.Since) + " boot=" + n.BootID + reason(n.Reason)
}

// ParseNeed reads a Need where the value is one.
func ParseNeed(text string) (Need, bool) {
	f := fields(text)
	n := Need{Since: f.time(), BootID: f.value("boot")}
	if f.more() {
		n.Reason = f.rest("a reason")
	}
	return n, f.err == nil
}

// reason is " "+text on one line and of bounded length, or " unknown".
func reason(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if text == "" {
		text = "unknown"
	}
	if len(text) > maxReason {
		text = strings.TrimRight(strings.ToValidUTF8(text[:maxReason-3], ""), " ") + "..."
	}
	return " " + text
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
