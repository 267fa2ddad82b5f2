package protocol

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func grant(text string) Grant {
	g, err := ParseGrant(text)
	if err != nil {
		panic(err)
	}
	return g
}

func TestStatusesAreReadAndRenderedAsTheProtocolSays(t *testing.T) {
	g := grant("nightly.0.17")
	lockers := map[string]LockerStatus{
		"granted nightly.0.17":                                                       {Step: Granted, Grant: g},
		"revoked nightly.0.17 the need vanished":                                     {Step: Revoked, Grant: g, Reason: "the need vanished"},
		"released nightly.0.17 2026-12-01T12:00:00Z outcome=rebooted":                {Step: Released, Grant: g, At: noon, Outcome: OutcomeRebooted},
		"released nightly.0.17 2026-12-01T12:00:00Z outcome=drain-failed failures=3": {Step: Released, Grant: g, At: noon, Outcome: OutcomeDrainFailed, Failures: 3},
	}
	for text, want := range lockers {
		got, err := ParseLockerStatus(text)
		if err != nil || got != want || want.String() != text {
			t.Errorf("%q: got %+v, %v; renders as %q", text, got, err, want)
		}
	}
	drainers := map[string]DrainerStatus{
		"cordoned nightly.0.17":           {Step: Cordoned, Grant: g},
		"cordoned nightly.0.17 foreign":   {Step: Cordoned, Grant: g, Foreign: true},
		"drained nightly.0.17":            {Step: Drained, Grant: g},
		"drained nightly.0.17 foreign":    {Step: Drained, Grant: g, Foreign: true},
		"restored nightly.0.17":           {Step: Restored, Grant: g},
		"failed nightly.0.17 pod a/b: no": {Step: Failed, Grant: g, Reason: "pod a/b: no"},
	}
	for text, want := range drainers {
		got, err := ParseDrainerStatus(text)
		if err != nil || got != want || want.String() != text {
			t.Errorf("%q: got %+v, %v; renders as %q", text, got, err, want)
		}
	}
	rebooters := map[string]RebooterStatus{
		"rebooting nightly.0.17 2a0f 2026-12-01T12:00:00Z": {Step: Rebooting, Grant: g, BootID: "2a0f", At: noon},
		"rebooted nightly.0.17":                            {Step: Rebooted, Grant: g},
		"rebooted nightly.0.17 done":                       {Step: Rebooted, Grant: g, Done: true},
		"failed nightly.0.17 not rebooted within 15m0s":    {Step: Failed, Grant: g, Reason: "not rebooted within 15m0s"},
	}
	for text, want := range rebooters {
		got, err := ParseRebooterStatus(text)
		if err != nil || got != want || want.String() != text {
			t.Errorf("%q: got %+v, %v; renders as %q", text, got, err, want)
		}
	}
}

func TestATimeOfAnotherZoneIsTheSameTime(t *testing.T) {
	got, err := ParseLockerStatus("released nightly.0.17 2026-12-01T13:00:00+01:00 outcome=done")
	if err != nil || !got.At.Equal(noon) {
		t.Errorf("got %v, %v", got.At, err)
	}
}

func TestWhatIsMalformedIsAnErrorThatSaysWhat(t *testing.T) {
	for text, complaint := range map[string]string{
		"":                             "a field is missing",
		"granted":                      "a field is missing",
		"granted ":                     "a space at the end",
		"granted nightly":              `grant "nightly"`,
		"granted nightly.0":            `grant "nightly.0"`,
		"granted nightly.0.0":          "counts from 1",
		"granted nightly.0.01":         `"01" is not a number`,
		"granted nightly.-1.1":         `"-1" is not a number`,
		"granted nightly.0.2147483648": `"2147483648" is not a number`,
		"granted nightly.0.1.1":        `grant "nightly.0.1.1"`,
		"granted Nightly.0.1":          "not a DNS label",
		"granted -a.0.1":               "not a DNS label",
		"granted .0.1":                 "want 1 to 40 characters",
		"granted " + strings.Repeat("a", 41) + ".0.1":                        "want 1 to 40 characters",
		"granted nightly.0.1 and more":                                       `unexpected "and more"`,
		"granted  nightly.0.1":                                               "a field is missing",
		"Granted nightly.0.1":                                                `"Granted" is none of`,
		"revoked nightly.0.1":                                                "a field is missing|a reason is missing",
		"released nightly.0.1":                                               "a field is missing",
		"released nightly.0.1 noon outcome=done":                             `"noon" is not an RFC 3339 time`,
		"released nightly.0.1 2026-12-01T12:00:00Z":                          "a field is missing",
		"released nightly.0.1 2026-12-01T12:00:00Z done":                     "is not outcome=",
		"released nightly.0.1 2026-12-01T12:00:00Z outcome=fine":             `outcome "fine" is none of`,
		"released nightly.0.1 2026-12-01T12:00:00Z outcome=done fails=1":     "is not failures=",
		"released nightly.0.1 2026-12-01T12:00:00Z outcome=done failures=-1": "failures",
	} {
		_, err := ParseLockerStatus(text)
		if err == nil {
			t.Errorf("%q is accepted", text)
			continue
		}
		if !strings.Contains(err.Error(), strings.Split(complaint, "|")[len(strings.Split(complaint, "|"))-1]) {
			t.Errorf("%q: %v, want %q", text, err, complaint)
		}
	}
	for _, text := range []string{"", "cordoned", "cordoned a.0.1 Foreign", "cordoned a.0.1 foreign x", "restored a.0.1 foreign", "failed a.0.1", "drained a.0.1 ", "granted a.0.1"} {
		if s, err := ParseDrainerStatus(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, s)
		}
	}
	for _, text := range []string{"", "rebooting a.0.1", "rebooting a.0.1 b", "rebooting a.0.1 b noon", "rebooting a.0.1 2026-12-01T12:00:00Z", "rebooted a.0.1 twice", "failed a.0.1", "cordoned a.0.1"} {
		if s, err := ParseRebooterStatus(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, s)
		}
	}
}

func TestAReasonIsOneLineOfBoundedLengthAndNeverMissing(t *testing.T) {
	g := grant("a.0.1")
	for reason, want := range map[string]string{
		"":                      "failed a.0.1 unknown",
		" \n":                   "failed a.0.1 unknown",
		"two\nlines\tand  more": "failed a.0.1 two lines and more",
		"\xff":                  "failed a.0.1 ?",
	} {
		if got := (DrainerStatus{Step: Failed, Grant: g, Reason: reason}).String(); got != want {
			t.Errorf("%q: got %q", reason, got)
		}
	}
	long := DrainerStatus{Step: Failed, Grant: g, Reason: strings.Repeat("ö", 1000)}.String()
	if len(long) > len("failed a.0.1 ")+maxReason {
		t.Errorf("%d bytes", len(long))
	}
	if _, err := ParseDrainerStatus(long); err != nil {
		t.Error(err)
	}
}

func TestEveryMalformedKeyOfANodeIsNamed(t *testing.T) {
	_, err := ParseState(map[string]string{LockerKey: "x", DrainerKey: "cordoned", RebooterKey: "rebooted a.0.1", "other": "x"})
	if err == nil || !strings.Contains(err.Error(), LockerKey) || !strings.Contains(err.Error(), DrainerKey) || strings.Contains(err.Error(), RebooterKey) {
		t.Errorf("got %v", err)
	}
}

func TestANeedIsAnyKeyOfADetectorWithAnyValue(t *testing.T) {
	s, err := ParseState(map[string]string{
		NeedPrefix + "sentinel": "2026-12-01T12:00:00Z boot=b linux-image", NeedPrefix + "kernel": "", NeedPrefix: "no name",
		"xdetector.ganglion.dev/a": "", "detector.ganglion.dev.evil/a": "", HoldKey: "",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{NeedPrefix + "sentinel": "2026-12-01T12:00:00Z boot=b linux-image", NeedPrefix + "kernel": ""}
	if diff := cmp.Diff(want, s.Needs); diff != "" || !s.Hold {
		t.Errorf("hold %v, needs %s", s.Hold, diff)
	}
	need, ours := ParseNeed(s.Needs[NeedPrefix+"sentinel"])
	if !ours || need != (Need{Since: noon, BootID: "b", Reason: "linux-image"}) {
		t.Errorf("got %+v, %v", need, ours)
	}
	if _, ours := ParseNeed(""); ours {
		t.Error("an empty value passes for ours")
	}
}

func TestPhases(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		want        Phase
	}{
		"no need, no grant":                             {nil, Idle},
		"a need":                                        {map[string]string{NeedPrefix + "x": ""}, Waiting},
		"a need after an earlier cycle":                 {map[string]string{NeedPrefix + "x": "", LockerKey: "released a.0.1 2026-12-01T12:00:00Z outcome=done", DrainerKey: "restored a.0.1"}, Waiting},
		"granted, all silent":                           {map[string]string{LockerKey: "granted a.0.2"}, PhaseGranted},
		"granted, others speak of an earlier grant":     {map[string]string{LockerKey: "granted a.0.2", DrainerKey: "drained a.0.1", RebooterKey: "rebooted a.0.1"}, PhaseGranted},
		"granted, others speak of another slot's grant": {map[string]string{LockerKey: "granted a.0.2", DrainerKey: "drained a.1.2", RebooterKey: "rebooted b.0.2"}, PhaseGranted},
		"cordoned":                                      {map[string]string{LockerKey: "granted a.0.2", DrainerKey: "cordoned a.0.2"}, Draining},
		"drained":                                       {map[string]string{LockerKey: "granted a.0.2", DrainerKey: "drained a.0.2 foreign"}, PhaseDrained},
		"rebooting":                                     {map[string]string{LockerKey: "granted a.0.2", DrainerKey: "drained a.0.2", RebooterKey: "rebooting a.0.2 b 2026-12-01T12:00:00Z"}, PhaseReboot},
		"rebooting, and revoked all the same: it is not undone": {map[string]string{LockerKey: "revoked a.0.2 x", DrainerKey: "drained a.0.2", RebooterKey: "rebooting a.0.2 b 2026-12-01T12:00:00Z"}, PhaseReboot},
		"rebooted":             {map[string]string{LockerKey: "granted a.0.2", DrainerKey: "drained a.0.2", RebooterKey: "rebooted a.0.2"}, PhaseRebooted},
		"restored":             {map[string]string{LockerKey: "granted a.0.2", DrainerKey: "restored a.0.2", RebooterKey: "rebooted a.0.2"}, PhaseRestored},
		"revoked, all silent":  {map[string]string{LockerKey: "revoked a.0.2 x"}, PhaseRevoked},
		"revoked in mid-drain": {map[string]string{LockerKey: "revoked a.0.2 x", DrainerKey: "cordoned a.0.2"}, PhaseRevoked},
		"revoked and undone":   {map[string]string{LockerKey: "revoked a.0.2 x", DrainerKey: "restored a.0.2"}, PhaseRestored},
		"the drain failed":     {map[string]string{LockerKey: "granted a.0.2", DrainerKey: "failed a.0.2 x"}, PhaseFailed},
		"the reboot failed":    {map[string]string{LockerKey: "granted a.0.2", DrainerKey: "drained a.0.2", RebooterKey: "failed a.0.2 x"}, PhaseFailed},
		"garbage":              {map[string]string{LockerKey: "granted a.0.2", DrainerKey: "💥"}, Unreadable},
	} {
		t.Run(name, func(t *testing.T) {
			var n Node
			n.State, n.Err = ParseState(c.annotations)
			if got := n.Phase(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func fuzzStatus[S interface{ String() string }](f *testing.F, parse func(string) (S, error), seeds ...string) {
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parse(text)
		if err != nil {
			return
		}
		// What was accepted renders to what is accepted, as the same.
		again, err := parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%q renders as %q, which reads as %q, %v", text, s, again, err)
		}
	})
}

func FuzzLockerStatus(f *testing.F) {
	fuzzStatus(f, ParseLockerStatus, "granted nightly.0.17", "revoked a.0.1 why", "released a.0.1 2026-12-01T12:00:00+01:00 outcome=rebooted failures=2")
}

func FuzzDrainerStatus(f *testing.F) {
	fuzzStatus(f, ParseDrainerStatus, "cordoned a.0.1 foreign", "failed a.0.1 why", "restored a.0.1")
}

func FuzzRebooterStatus(f *testing.F) {
	fuzzStatus(f, ParseRebooterStatus, "rebooting a.0.1 2a0f 2026-12-01T12:00:00Z", "rebooted a.0.1 done", "failed a.0.1 why")
}

func FuzzNeed(f *testing.F) {
	f.Add("2026-12-01T12:00:00Z boot=b linux-image")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		need, ours := ParseNeed(text)
		if !ours {
			return
		}
		if again, ours := ParseNeed(need.String()); !ours || again.String() != need.String() {
			t.Errorf("%q renders as %q, which reads as %q, %v", text, need, again, ours)
		}
	})
}
