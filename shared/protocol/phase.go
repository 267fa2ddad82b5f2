package protocol

// Phase is where a node is in its cycle. It follows from the annotations alone.
type Phase string

// The phases of the protocol, and one for a node that cannot be read.
const (
	Idle          Phase = "Idle"       // no need, no grant
	Waiting       Phase = "Waiting"    // a need, no grant
	PhaseGranted  Phase = "Granted"    // a grant; the drainer is silent on it
	Draining      Phase = "Draining"   // cordoned
	PhaseDrained  Phase = "Drained"    // nothing evictable is left; the dispatcher is silent
	PhaseReboot   Phase = "Rebooting"  // the reboot may begin at any time, or has
	PhaseRebooted Phase = "Rebooted"   // proved to be rebooted, still cordoned
	PhaseRestored Phase = "Restored"   // schedulable again, or as it was before
	PhaseRevoked  Phase = "Revoked"    // the grant was taken back, the drainer has to undo
	PhaseFailed   Phase = "Failed"     // the cycle failed, the drainer has to undo or the locker to release
	Unreadable    Phase = "Unreadable" // a value is malformed: nobody acts
)

// Phases are all of them, in the order in which a node goes through them.
var Phases = []Phase{
	Idle, Waiting, PhaseGranted, Draining, PhaseDrained, PhaseReboot,
	PhaseRebooted, PhaseRestored, PhaseRevoked, PhaseFailed, Unreadable,
}

// Phase is the node's phase. A reboot that has begun is never undone, so
// Rebooting comes before Revoked.
func (s State) Phase() Phase {
	g := s.Current()
	if g.IsZero() {
		if len(s.Needs) > 0 {
			return Waiting
		}
		return Idle
	}
	drainer, rebooter := s.DrainerOn(g).Step, s.RebooterOn(g).Step
	switch {
	case drainer == Failed || rebooter == Failed:
		return PhaseFailed
	case drainer == Restored:
		return PhaseRestored
	case rebooter == Rebooted:
		return PhaseRebooted
	case rebooter == Rebooting:
		return PhaseReboot
	case s.Locker.Step == Revoked:
		return PhaseRevoked
	case drainer == Drained:
		return PhaseDrained
	case drainer == Cordoned:
		return Draining
	}
	return PhaseGranted
}
