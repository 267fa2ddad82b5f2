// Package need is the detector's rule: what its sentinels say and what the node
// carries go in, what to write comes out. It is apart from the other rules so
// that the detector, which runs on every node, links nothing for it.
package need

import (
	"slices"
	"time"

	"ganglion.dev/shared/protocol"
)

// Verdict is what the sentinels say.
type Verdict int

// The verdicts. Unknown is the zero value: it is never "not required".
const (
	Unknown Verdict = iota
	Required
	NotRequired
)

// Join is the verdict of several sentinels: one that is there is enough, and one
// that cannot be read leaves it unknown whether any is.
func Join(verdicts ...Verdict) Verdict {
	switch {
	case slices.Contains(verdicts, Required):
		return Required
	case len(verdicts) == 0 || slices.Contains(verdicts, Unknown):
		return Unknown
	}
	return NotRequired
}

// Seen is what the detector observed.
type Seen struct {
	Verdict Verdict
	BootID  string
	Reason  string
}

// Key is the detector's own key on its node, as it stands.
type Key struct {
	There bool
	Value string
}

// Decide tells what the key has to be, and whether that is a change. A need that
// was there in this boot keeps its age; one that has survived a reboot is new.
func Decide(seen Seen, have Key, now time.Time) (want Key, change bool) {
	switch seen.Verdict {
	case NotRequired:
		return Key{}, have.There
	case Required:
	default:
		return have, false
	}
	need := protocol.Need{Since: now.UTC().Truncate(time.Second), BootID: seen.BootID, Reason: seen.Reason}
	if old, ours := protocol.ParseNeed(have.Value); have.There && ours && old.BootID == seen.BootID {
		need.Since = old.Since
	}
	want = Key{There: true, Value: need.String()}
	return want, want != have
}
