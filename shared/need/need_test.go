package need

import (
	"testing"
	"time"

	"ganglion.dev/shared/protocol"
)

func TestJoin(t *testing.T) {
	for name, c := range map[string]struct {
		verdicts []Verdict
		want     Verdict
	}{
		"no sentinel at all tells nothing":              {nil, Unknown},
		"one that is there is enough":                   {[]Verdict{NotRequired, Unknown, Required}, Required},
		"one that cannot be read leaves it open":        {[]Verdict{NotRequired, Unknown}, Unknown},
		"all have to be absent for it not to be needed": {[]Verdict{NotRequired, NotRequired}, NotRequired},
	} {
		if got := Join(c.verdicts...); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestDecide(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 500, time.UTC)
	earlier := now.Add(-time.Hour).Truncate(time.Second)
	key := func(since time.Time, boot, reason string) Key {
		return Key{There: true, Value: protocol.Need{Since: since, BootID: boot, Reason: reason}.String()}
	}
	required := Seen{Verdict: Required, BootID: "b2", Reason: "libc6"}
	fresh := key(now.Truncate(time.Second), "b2", "libc6")
	for name, c := range map[string]struct {
		seen   Seen
		have   Key
		want   Key
		change bool
	}{
		"a need that comes is written":                          {required, Key{}, fresh, true},
		"a need that is written is left alone":                  {required, key(earlier, "b2", "libc6"), key(earlier, "b2", "libc6"), false},
		"another reason keeps the age":                          {required, key(earlier, "b2", "bash"), key(earlier, "b2", "libc6"), true},
		"a need that has survived a reboot is new":              {required, key(earlier, "b1", "libc6"), fresh, true},
		"a value that is not ours is replaced":                  {required, Key{There: true, Value: "by hand"}, fresh, true},
		"an empty value that is not ours is replaced":           {required, Key{There: true}, fresh, true},
		"a need that goes is removed":                           {Seen{Verdict: NotRequired}, fresh, Key{}, true},
		"no need and no key is nothing to do":                   {Seen{Verdict: NotRequired}, Key{}, Key{}, false},
		"what cannot be told leaves a key as it is":             {Seen{BootID: "b2"}, key(earlier, "b1", "x"), key(earlier, "b1", "x"), false},
		"what cannot be told writes no key":                     {Seen{BootID: "b2"}, Key{}, Key{}, false},
		"a clock that was set back leaves the age of this boot": {required, key(now.Add(time.Hour), "b2", "libc6"), key(now.Add(time.Hour), "b2", "libc6"), false},
	} {
		want, change := Decide(c.seen, c.have, now)
		if want != c.want || change != c.change {
			t.Errorf("%s: %+v, %t; want %+v, %t", name, want, change, c.want, c.change)
		}
	}
}
