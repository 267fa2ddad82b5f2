package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"ganglion.dev/shared/protocol"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// node makes a Ready node of annotations in the order key, value, where a key is a
// word: locker, drainer, rebooter, hold, or a detector's name.
func node(name string, pairs ...string) *protocol.Node {
	annotations := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		key := map[string]string{
			"locker": protocol.LockerKey, "drainer": protocol.DrainerKey, "rebooter": protocol.RebooterKey, "hold": protocol.HoldKey,
		}[pairs[i]]
		if key == "" {
			key = protocol.NeedPrefix + pairs[i]
		}
		annotations[key] = pairs[i+1]
	}
	n := &protocol.Node{Name: name, UID: "uid-" + name, ResourceVersion: "1", Ready: true, BootID: "boot-1"}
	n.State, n.Err = protocol.ParseState(annotations)
	return n
}

func with(n *protocol.Node, change func(*protocol.Node)) *protocol.Node {
	change(n)
	return n
}

func notReady(n *protocol.Node) *protocol.Node {
	return with(n, func(n *protocol.Node) { n.Ready = false })
}

func labelled(n *protocol.Node, key, value string) *protocol.Node {
	return with(n, func(n *protocol.Node) { n.Labels = map[string]string{key: value} })
}

func controlPlane(n *protocol.Node) *protocol.Node {
	return labelled(n, protocol.ControlPlaneLabel, "")
}

// held makes a slot Lease that a node holds, from a grant.
func held(grant, holder string) *Lease {
	g, err := protocol.ParseGrant(grant)
	if err != nil {
		panic(err)
	}
	return &Lease{Name: g.Slot.String(), Slot: g.Slot, Holder: holder, NodeUID: "uid-" + holder, Turn: g.Turn, Acquired: now.Add(-time.Minute)}
}

func free(grant string) *Lease {
	l := held(grant, "")
	l.NodeUID = ""
	return l
}

func window(name string, limit int, changes ...func(*Window)) *Window {
	w := &Window{
		Name: name, Selector: labels.Everything(), Cap: func(int) int { return limit },
		MinRebootInterval: time.Hour, RebootTimeout: 15 * time.Minute,
	}
	for _, change := range changes {
		change(w)
	}
	return w
}

func view(windows []*Window, leases []*Lease, nodes ...*protocol.Node) *LockerView {
	v := &LockerView{
		Nodes: map[string]*protocol.Node{}, Windows: windows, Leases: map[string]*Lease{},
		Backoff: Backoff{Base: time.Minute, Max: time.Hour}, Now: now,
	}
	for _, n := range nodes {
		v.Nodes[n.Name] = n
	}
	for _, l := range leases {
		if l.Name == ControlPlaneLease {
			v.ControlPlane = l
			continue
		}
		v.Leases[l.Name] = l
	}
	return v
}

// told is the decision in a line.
func told(v *LockerView) string {
	action, report := v.Decide()
	if action == nil {
		var reasons []string
		for _, name := range slices.Sorted(maps.Keys(report.Waiting)) {
			reasons = append(reasons, name+" "+report.Waiting[name].Reason)
		}
		return strings.Join(reasons, ", ")
	}
	text := string(action.Kind) + " "
	if action.Status.Step != "" {
		return text + action.About() + ": " + action.Status.String()
	}
	return text + action.Grant.String()
}

func TestWhatTheLockerDecides(t *testing.T) {
	one := []*Window{window("w", 1)}
	two := []*Window{window("w", 2)}
	long := "2026-11-01T00:00:00Z"
	cases := map[string]struct {
		view *LockerView
		want string
	}{
		"nothing is needed":                                    {view(one, nil, node("a")), ""},
		"a need is granted the first slot":                     {view(one, nil, node("a", "x", "")), "take a: granted w.0.1"},
		"a slot that was free is taken for its next turn":      {view(one, []*Lease{free("w.0.7")}, node("a", "x", "")), "take a: granted w.0.8"},
		"a turn that a node's record names is not given again": {view(one, nil, node("a", "x", ""), node("b", "drainer", "restored w.0.4")), "take a: granted w.0.5"},
		"no window selects it":                                 {view([]*Window{window("w", 1, func(w *Window) { w.Selector = labels.Nothing() })}, nil, node("a", "x", "")), "a NoWindow"},
		"a held slot is not taken":                             {view(one, []*Lease{held("w.0.1", "b")}, node("a", "x", ""), node("b", "x", "", "locker", "granted w.0.1")), "a NoFreeSlot"},
		"a second slot is":                                     {view(two, []*Lease{held("w.0.1", "b")}, node("a", "x", ""), node("b", "x", "", "locker", "granted w.0.1")), "take a: granted w.1.1"},
		"holders of slots above a lowered cap still count":     {view(one, []*Lease{free("w.0.1"), held("w.1.1", "b")}, node("a", "x", ""), node("b", "x", "", "locker", "granted w.1.1")), "a NoFreeSlot"},
		"a slot that is about to be freed is not free yet":     {with3(view(two, []*Lease{held("w.0.1", "b"), held("w.1.1", "c")}, node("a", "x", ""), node("b", "locker", "released w.0.1 2026-12-01T12:00:00Z outcome=done"), node("c", "x", "", "locker", "granted w.1.1")), func(v *LockerView) { v.Aside = map[string]bool{"b": true} }), "a NoFreeSlot"},
		"on hold":   {view(one, nil, node("a", "x", "", "hold", "")), "a Hold"},
		"suspended": {view([]*Window{window("w", 1, func(w *Window) { w.Suspended = true })}, nil, node("a", "x", "")), "a Suspended"},
		"a suspended window keeps its nodes from others":        {view([]*Window{window("v", 1), window("w", 1, func(w *Window) { w.Suspended, w.Priority = true, 1 })}, nil, node("a", "x", "")), "a Suspended"},
		"an invalid window grants nothing, and others go on":    {view([]*Window{window("v", 1), window("w", 1, func(w *Window) { w.Invalid, w.Priority = "no", 1 })}, nil, node("a", "x", "")), "take a: granted v.0.1"},
		"the window of higher priority has the node":            {view([]*Window{window("a", 1), window("z", 1, func(w *Window) { w.Priority = 1 })}, nil, node("a", "x", "")), "take a: granted z.0.1"},
		"then the first by name":                                {view([]*Window{window("z", 1), window("a", 1)}, nil, node("a", "x", "")), "take a: granted a.0.1"},
		"the next window does not help where the first is full": {view([]*Window{window("a", 1), window("z", 1)}, []*Lease{held("a.0.1", "b")}, node("a", "x", ""), node("b", "x", "", "locker", "granted a.0.1")), "a NoFreeSlot"},
		"a node that is not Ready is not granted":               {view(one, nil, notReady(node("a", "x", ""))), "a NotReady"},
		"another that is not Ready uses up capacity":            {view(one, nil, node("a", "x", ""), notReady(node("b"))), "a Unavailable"},
		"unless it is to be ignored":                            {view([]*Window{window("w", 1, func(w *Window) { w.IgnoreUnavailable = true })}, nil, node("a", "x", ""), notReady(node("b"))), "take a: granted w.0.1"},
		"one that is not Ready and holds a slot counts once":    {view(two, []*Lease{held("w.0.1", "b")}, node("a", "x", ""), notReady(node("b", "x", "", "locker", "granted w.0.1", "drainer", "drained w.0.1", "rebooter", "rebooting w.0.1 boot-1 2026-12-01T11:59:00Z"))), "take a: granted w.1.1"},
		"the oldest need goes first":                            {view(one, nil, node("a", "x", "2026-11-02T00:00:00Z boot=b x"), node("b", "x", "2026-11-01T00:00:00Z boot=b x")), "take b: granted w.0.1"},
		"by name where that is asked for":                       {view([]*Window{window("w", 1, func(w *Window) { w.Order = ByName })}, nil, node("a", "x", "2026-11-02T00:00:00Z boot=b x"), node("b", "x", "2026-11-01T00:00:00Z boot=b x")), "take a: granted w.0.1"},
		"who failed lets others go first":                       {view(one, nil, node("a", "x", "", "locker", "released w.0.1 "+long+" outcome=drain-failed failures=1"), node("b", "x", "")), "take b: granted w.0.2"},
		"who failed a moment ago waits":                         {view(one, nil, node("a", "x", "", "locker", "released w.0.1 2026-12-01T11:59:30Z outcome=drain-failed failures=1")), "a BackOff"},
		"longer with each failure":                              {view(one, nil, node("a", "x", "", "locker", "released w.0.1 2026-12-01T11:57:00Z outcome=reboot-failed failures=3")), "a BackOff"},
		"and then is tried again":                               {view(one, nil, node("a", "x", "", "locker", "released w.0.1 2026-12-01T11:55:00Z outcome=reboot-failed failures=3")), "take a: granted w.0.2"},
		"a revocation is no failure":                            {view(one, nil, node("a", "x", "", "locker", "released w.0.1 2026-12-01T11:59:59Z outcome=revoked")), "take a: granted w.0.2"},
		"C38 the need survives the reboot: not again too soon":  {view(one, nil, node("a", "x", "", "locker", "released w.0.1 2026-12-01T11:00:01Z outcome=rebooted")), "a RebootLoop"},
		"but after the interval":                                {view(one, nil, node("a", "x", "", "locker", "released w.0.1 2026-12-01T11:00:00Z outcome=rebooted")), "take a: granted w.0.2"},
		"something unfinished of an earlier grant":              {view(one, nil, node("a", "x", "", "drainer", "cordoned v.0.1")), "a Unfinished"},
		"a reboot of an earlier grant has not ended":            {view(one, nil, node("a", "x", "", "locker", "released w.0.1 "+long+" outcome=revoked", "rebooter", "rebooting w.0.1 boot-1 "+long)), "a Unfinished"},
		"garbage on one node does not hold up the others":       {view(one, nil, node("a", "x", "", "drainer", "💥"), node("b", "x", "")), "take b: granted w.0.1"},
		"garbage on a holder leads to nothing":                  {view(one, []*Lease{held("w.0.1", "a")}, node("a", "x", "", "locker", "granted w.0.1", "drainer", "💥")), ""},
		"a Lease that cannot be read counts as held":            {view(one, []*Lease{with2(free("w.0.1"), func(l *Lease) { l.Err = errors.New("garbage") })}, node("a", "x", "")), "a NoFreeSlot"},
		"a node that is set aside does not hold up the others":  {with3(view(one, nil, node("a", "x", ""), node("b", "x", "")), func(v *LockerView) { v.Aside = map[string]bool{"a": true} }), "take b: granted w.0.1"},

		"the slot was taken and the notice never written: it is given back": {view(one, []*Lease{held("w.0.1", "a")}, node("a", "x", "")), "release a: released w.0.1 2026-12-01T12:00:00Z outcome=revoked"},
		"and cannot be any more: the node says released first":              {view(one, []*Lease{held("w.0.1", "a")}, node("a")), "release a: released w.0.1 2026-12-01T12:00:00Z outcome=revoked"},
		"then the slot is freed":                                              {view(one, []*Lease{held("w.0.1", "a")}, node("a", "locker", "released w.0.1 2026-12-01T12:00:00Z outcome=revoked")), "free w.0.1"},
		"a slot whose node went on under another grant is freed":              {view([]*Window{window("v", 1), window("w", 1)}, []*Lease{held("w.0.1", "a"), held("v.0.1", "a")}, node("a", "x", "", "locker", "granted v.0.1")), "free w.0.1"},
		"the notice was lost in mid-drain: it is written again":               {view(one, []*Lease{held("w.0.1", "a")}, node("a", "drainer", "cordoned w.0.1")), "notify a: granted w.0.1"},
		"the notice was lost in mid-reboot":                                   {view(one, []*Lease{held("w.0.1", "a")}, node("a", "drainer", "drained w.0.1", "rebooter", "rebooting w.0.1 boot-1 "+long)), "notify a: granted w.0.1"},
		"released is not believed of a node that is in mid-reboot":            {view(one, []*Lease{held("w.0.1", "a")}, node("a", "locker", "released w.0.1 "+long+" outcome=done", "rebooter", "rebooting w.0.1 boot-1 "+long)), "notify a: granted w.0.1"},
		"C01 the holder's object is gone":                                     {view(one, []*Lease{held("w.0.1", "a")}, node("b", "x", "")), "free w.0.1"},
		"C01 the same name with a new UID inherits nothing":                   {view(one, []*Lease{with2(held("w.0.1", "a"), func(l *Lease) { l.NodeUID = "old" })}, node("a", "x", "")), "free w.0.1"},
		"a grant that no Lease backs is revoked":                              {view(one, nil, node("a", "x", "", "locker", "granted w.0.1")), "revoke a: revoked w.0.1 no Lease backs the grant"},
		"and released once it is undone":                                      {view(one, nil, node("a", "x", "", "locker", "revoked w.0.1 x", "drainer", "restored w.0.1")), "release a: released w.0.1 2026-12-01T12:00:00Z outcome=revoked"},
		"but not in mid-reboot":                                               {view(one, nil, node("a", "locker", "granted w.0.1", "rebooter", "rebooting w.0.1 boot-1 2026-12-01T11:59:00Z")), ""},
		"the need vanished":                                                   {view(one, []*Lease{held("w.0.1", "a")}, node("a", "locker", "granted w.0.1")), "revoke a: revoked w.0.1 the need vanished"},
		"the need vanished in mid-drain":                                      {view(one, []*Lease{held("w.0.1", "a")}, node("a", "locker", "granted w.0.1", "drainer", "cordoned w.0.1")), "revoke a: revoked w.0.1 the need vanished"},
		"the need vanished of a drained node":                                 {view(one, []*Lease{held("w.0.1", "a")}, node("a", "locker", "granted w.0.1", "drainer", "drained w.0.1")), "revoke a: revoked w.0.1 the need vanished"},
		"the need vanished when the reboot may have begun: nothing is undone": {view(one, []*Lease{held("w.0.1", "a")}, node("a", "locker", "granted w.0.1", "drainer", "drained w.0.1", "rebooter", "rebooting w.0.1 boot-1 2026-12-01T11:59:00Z")), ""},
		"hold appeared":                                    {view(one, []*Lease{held("w.0.1", "a")}, node("a", "x", "", "hold", "", "locker", "granted w.0.1")), "revoke a: revoked w.0.1 the node is on hold"},
		"the window was deleted":                           {view(nil, []*Lease{held("w.0.1", "a")}, node("a", "x", "", "locker", "granted w.0.1")), "revoke a: revoked w.0.1 the window was deleted"},
		"the window was suspended":                         {view([]*Window{window("w", 1, func(w *Window) { w.Suspended = true })}, []*Lease{held("w.0.1", "a")}, node("a", "x", "", "locker", "granted w.0.1")), "revoke a: revoked w.0.1 the window is suspended"},
		"what is revoked waits for the drainer":            {view(one, []*Lease{held("w.0.1", "a")}, node("a", "locker", "revoked w.0.1 x", "drainer", "cordoned w.0.1")), ""},
		"and is released once it is undone":                {view(one, []*Lease{held("w.0.1", "a")}, node("a", "locker", "revoked w.0.1 x", "drainer", "restored w.0.1")), "release a: released w.0.1 2026-12-01T12:00:00Z outcome=revoked"},
		"a cycle is over":                                  {view(one, []*Lease{held("w.0.1", "a")}, node("a", "x", "", "locker", "granted w.0.1", "drainer", "restored w.0.1", "rebooter", "rebooted w.0.1")), "release a: released w.0.1 2026-12-01T12:00:00Z outcome=rebooted"},
		"a cycle without a reboot is over":                 {view(one, []*Lease{held("w.0.1", "a")}, node("a", "x", "", "locker", "granted w.0.1", "drainer", "restored w.0.1", "rebooter", "rebooted w.0.1 done")), "release a: released w.0.1 2026-12-01T12:00:00Z outcome=done"},
		"C11 restored without a reboot is no success":      {view(one, []*Lease{held("w.0.1", "a")}, node("a", "x", "", "locker", "granted w.0.1", "drainer", "restored w.0.1")), "release a: released w.0.1 2026-12-01T12:00:00Z outcome=drain-failed failures=1"},
		"the drain failed":                                 {view(one, []*Lease{with2(held("w.0.1", "a"), func(l *Lease) { l.Failures = 2 })}, node("a", "x", "", "locker", "granted w.0.1", "drainer", "failed w.0.1 y")), "release a: released w.0.1 2026-12-01T12:00:00Z outcome=drain-failed failures=3"},
		"the reboot failed and the node is still cordoned": {view(one, []*Lease{held("w.0.1", "a")}, node("a", "x", "", "locker", "granted w.0.1", "drainer", "drained w.0.1", "rebooter", "failed w.0.1 y")), ""},
		"the reboot failed and the node is restored":       {view(one, []*Lease{held("w.0.1", "a")}, node("a", "x", "", "locker", "granted w.0.1", "drainer", "restored w.0.1", "rebooter", "failed w.0.1 y")), "release a: released w.0.1 2026-12-01T12:00:00Z outcome=reboot-failed failures=1"},
		"a released slot is freed":                         {view(one, []*Lease{held("w.0.1", "a")}, node("a", "locker", "released w.0.1 "+long+" outcome=rebooted", "drainer", "restored w.0.1", "rebooter", "rebooted w.0.1")), "free w.0.1"},
		"a restored node settles: since when is noted":     {view([]*Window{window("w", 1, func(w *Window) { w.Settle = time.Minute })}, []*Lease{held("w.0.1", "a")}, node("a", "x", "", "locker", "granted w.0.1", "drainer", "restored w.0.1", "rebooter", "rebooted w.0.1")), "settle w.0.1"},
		"a restored node settles: not yet":                 {view([]*Window{window("w", 1, func(w *Window) { w.Settle = time.Minute })}, []*Lease{with2(held("w.0.1", "a"), func(l *Lease) { l.Restored = now.Add(-59 * time.Second) })}, node("a", "x", "", "locker", "granted w.0.1", "drainer", "restored w.0.1", "rebooter", "rebooted w.0.1")), ""},
		"a restored node has settled":                      {view([]*Window{window("w", 1, func(w *Window) { w.Settle = time.Minute })}, []*Lease{with2(held("w.0.1", "a"), func(l *Lease) { l.Restored = now.Add(-time.Minute) })}, node("a", "locker", "granted w.0.1", "drainer", "restored w.0.1", "rebooter", "rebooted w.0.1")), "release a: released w.0.1 2026-12-01T12:00:00Z outcome=rebooted"},

		"a node of the control plane, alone":                                  {view(two, nil, controlPlane(node("a", "x", ""))), "take a: granted w.0.1"},
		"another of the control plane is in flight":                           {view(two, []*Lease{held("w.0.1", "b")}, controlPlane(node("a", "x", "")), controlPlane(node("b", "x", "", "locker", "granted w.0.1"))), "a ControlPlane"},
		"another of the control plane is in flight of another window":         {view([]*Window{window("v", 9, func(w *Window) { w.Selector = labels.SelectorFromSet(labels.Set{"pool": "v"}) }), window("w", 9)}, []*Lease{held("v.0.1", "b")}, controlPlane(node("a", "x", "")), controlPlane(node("b", "x", "", "locker", "granted v.0.1"))), "a ControlPlane"},
		"another of the control plane is not Ready":                           {view([]*Window{window("w", 5, func(w *Window) { w.IgnoreUnavailable = true })}, nil, controlPlane(node("a", "x", "")), notReady(controlPlane(node("b")))), "a ControlPlane"},
		"the Lease of the control plane is held for another grant":            {view(two, []*Lease{free("w.0.1"), controlPlaneLease("w.1.1", "b"), held("w.1.1", "b")}, controlPlane(node("a", "x", "")), node("b", "x", "", "locker", "granted w.1.1")), "a ControlPlane"},
		"a worker is not held up by the control plane":                        {view(two, []*Lease{held("w.0.1", "b")}, node("a", "x", ""), controlPlane(node("b", "x", "", "locker", "granted w.0.1"))), "take a: granted w.1.1"},
		"the Lease of the control plane is given back with the slot":          {view(one, []*Lease{free("w.0.1"), controlPlaneLease("w.0.1", "a")}, controlPlane(node("a"))), "free-control-plane w.0.1"},
		"and when the slot went to a later turn":                              {view(one, []*Lease{held("w.0.2", "b"), controlPlaneLease("w.0.1", "a")}, controlPlane(node("a")), node("b", "x", "", "locker", "granted w.0.2")), "free-control-plane w.0.1"},
		"but not before: a locker that took it may be about to take the slot": {view(one, []*Lease{free("w.0.1"), controlPlaneLease("w.0.2", "a")}, controlPlane(node("a"))), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := told(c.view); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func with2(l *Lease, change func(*Lease)) *Lease { change(l); return l }

func with3(v *LockerView, change func(*LockerView)) *LockerView { change(v); return v }

func controlPlaneLease(grant, holder string) *Lease {
	l := held(grant, holder)
	l.Name, l.For, l.Slot, l.Turn = ControlPlaneLease, l.Grant(), protocol.Slot{}, 0
	return l
}

func TestNeedsThatTheRebootAnsweredAreRemovedAndThoseOfTheNewBootStay(t *testing.T) {
	n := with(node("a", "old", "2026-11-01T00:00:00Z boot=boot-0 x", "hand", "", "new", "2026-12-01T11:59:00Z boot=boot-1 x",
		"locker", "granted w.0.1", "drainer", "restored w.0.1", "rebooter", "rebooted w.0.1"), func(*protocol.Node) {})
	action, _ := view([]*Window{window("w", 1)}, []*Lease{held("w.0.1", "a")}, n).Decide()
	want := []string{protocol.NeedPrefix + "hand", protocol.NeedPrefix + "old"}
	if diff := cmp.Diff(want, action.RemoveNeeds); diff != "" {
		t.Error(diff)
	}
}

func TestANodeThatIsNotBackInTimeIsStalledAndKeepsItsSlot(t *testing.T) {
	n := notReady(node("a", "locker", "granted w.0.1", "drainer", "drained w.0.1", "rebooter", "rebooting w.0.1 boot-1 2026-12-01T11:45:00Z"))
	action, report := view([]*Window{window("w", 1)}, []*Lease{held("w.0.1", "a")}, n, node("b", "x", "")).Decide()
	if action != nil || !slices.Equal(report.Windows["w"].Stalled, []string{"a"}) || report.Waiting["b"].Reason != ReasonNoFreeSlot {
		t.Errorf("action %+v, report %+v", action, report.Windows["w"])
	}
}

func TestBackoffDoublesUpToItsMost(t *testing.T) {
	b := Backoff{Base: time.Minute, Max: 10 * time.Minute}
	for failures, want := range map[int]time.Duration{0: 0, 1: time.Minute, 2: 2 * time.Minute, 4: 8 * time.Minute, 5: 10 * time.Minute, 1000: 10 * time.Minute} {
		if got := b.After(failures); got != want {
			t.Errorf("after %d: %s, want %s", failures, got, want)
		}
	}
}

func TestADecisionIsTheSameWhateverTheOrderOfAMap(t *testing.T) {
	for range 50 {
		var nodes []*protocol.Node
		for i := range 20 {
			nodes = append(nodes, node(fmt.Sprintf("n%02d", i), "x", ""))
		}
		if got := told(view([]*Window{window("w", 2)}, nil, nodes...)); got != "take n00: granted w.0.1" {
			t.Fatal(got)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	var nodes []*protocol.Node
	for i := range 5000 {
		n := node(fmt.Sprintf("n%04d", i), "locker", "released w.0.1 2026-11-01T00:00:00Z outcome=rebooted", "drainer", "restored w.0.1", "rebooter", "rebooted w.0.1")
		if i%5 == 0 {
			n = node(n.Name, "x", "2026-11-02T00:00:00Z boot=b x")
		}
		nodes = append(nodes, n)
	}
	v := view([]*Window{window("w", 5)}, nil, nodes...)
	for b.Loop() {
		v.Decide()
	}
}
