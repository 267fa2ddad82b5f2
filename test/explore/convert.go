package explore

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

// Times of the model: everything is written at the same time, and whoever decides does
// so either then, or when every wait is over.
var (
	then  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	later = then.Add(1000 * time.Hour)
)

const needKey = protocol.NeedPrefix + "sentinel"

func nodeName(n int8) string   { return fmt.Sprintf("node-%c", 'a'+n) }
func windowName(w int8) string { return fmt.Sprintf("window-%d", w) }
func bootID(b int8) string     { return fmt.Sprintf("boot-%d", b) }
func uidOf(u int8) string      { return fmt.Sprintf("uid-%d", u) }

func number(text string) int8 { return int8(text[len(text)-1] - '0') }

var outcomes = []string{
	"", protocol.OutcomeRebooted, protocol.OutcomeDone, protocol.OutcomeDrainFailed, protocol.OutcomeRebootFailed, protocol.OutcomeRevoked,
}

var stepNames = map[step]string{
	granted: protocol.Granted, revoked: protocol.Revoked, released: protocol.Released,
	cordoned: protocol.Cordoned, drained: protocol.Drained, restored: protocol.Restored,
	rebooting: protocol.Rebooting, rebooted: protocol.Rebooted, failed: protocol.Failed,
}

var steps = func() map[string]step {
	m := map[string]step{}
	for s, name := range stepNames {
		m[name] = s
	}
	return m
}()

func indexOf(list []string, text string) int8 {
	for i, s := range list {
		if s == text {
			return int8(i)
		}
	}
	panic("explore: " + text)
}

func (g grant) real() protocol.Grant {
	if g.turn == 0 {
		return protocol.Grant{}
	}
	return protocol.Grant{Slot: protocol.Slot{Window: windowName(g.window), Index: int(g.slot)}, Turn: int(g.turn)}
}

func grantOf(g protocol.Grant) grant {
	if g.IsZero() {
		return grant{}
	}
	return grant{number(g.Window), int8(g.Index), int8(g.Turn)}
}

// real is the node as the rules see it.
func (n *node) real(index int8) *protocol.Node {
	r := &protocol.Node{
		Name: nodeName(index), UID: uidOf(n.uid), Unschedulable: n.unschedulable, Ready: n.ready, BootID: bootID(n.boot),
	}
	s := &r.State
	if n.need != 0 {
		s.Needs = map[string]string{needKey: protocol.Need{Since: then, BootID: bootID(n.need - 1), Reason: "kernel"}.String()}
	}
	s.Hold = n.hold
	if n.locker.step != absent {
		s.Locker = protocol.LockerStatus{Step: stepNames[n.locker.step], Grant: n.locker.grant.real()}
		if n.locker.step == released {
			s.Locker.At, s.Locker.Outcome, s.Locker.Failures = then, outcomes[n.locker.outcome], int(n.locker.failures)
		}
	}
	if n.drainer.step != absent {
		s.Drainer = protocol.DrainerStatus{Step: stepNames[n.drainer.step], Grant: n.drainer.grant.real(), Foreign: n.drainer.foreign}
	}
	if n.rebooter.step != absent {
		s.Rebooter = protocol.RebooterStatus{Step: stepNames[n.rebooter.step], Grant: n.rebooter.grant.real()}
		if n.rebooter.step == rebooting {
			s.Rebooter.BootID, s.Rebooter.At = bootID(n.rebooter.boot), then
		}
	}
	return r
}

// current is the grant that the node is under.
func (n *node) current() grant {
	if n.locker.step == granted || n.locker.step == revoked {
		return n.locker.grant
	}
	return grant{}
}

// ours tells that the drainer has cordoned the node and not undone it.
func (n *node) ours() bool { return n.drainer.step == cordoned || n.drainer.step == drained }

// real is the Lease as the rules see it.
func (l *lease) real(w, s int8) *rules.Lease {
	r := &rules.Lease{
		Name: fmt.Sprintf("%s.%d", windowName(w), s), Slot: protocol.Slot{Window: windowName(w), Index: int(s)},
		Turn: int(l.turn), Failures: int(l.failures),
	}
	if l.holder != 0 {
		r.Holder, r.NodeUID, r.Acquired = nodeName(l.holder-1), uidOf(l.uid), then
	}
	return r
}

// view is what a locker decides from.
func (c *cluster) view(o *Options, now time.Time, aside int8) *rules.LockerView {
	v := &rules.LockerView{
		Nodes: map[string]*protocol.Node{}, Leases: map[string]*rules.Lease{}, Aside: map[string]bool{},
		Backoff: rules.Backoff{Base: time.Minute, Max: time.Hour}, Now: now,
	}
	for n := range int8(o.Nodes) {
		if c.nodes[n].there {
			v.Nodes[nodeName(n)] = c.nodes[n].real(n)
		}
	}
	if aside >= 0 {
		v.Aside[nodeName(aside)] = true
	}
	for w := range int8(o.Windows) {
		for s := range int8(maxSlots) {
			if c.leases[w][s].there {
				l := c.leases[w][s].real(w, s)
				v.Leases[l.Name] = l
			}
		}
		if c.windows[w].there {
			v.Windows = append(v.Windows, &rules.Window{
				Name: windowName(w), Priority: int32(-w), Suspended: c.windows[w].suspended, Selector: labels.Everything(),
				Cap: func(int) int { return o.Cap }, IgnoreUnavailable: o.IgnoreUnavailable,
				MinRebootInterval: time.Hour, RebootTimeout: time.Hour,
			})
		}
	}
	return v
}

var lockerKinds = []string{
	"", string(rules.Take), string(rules.Notify), string(rules.Revoke), string(rules.Release), string(rules.Settle), string(rules.Free),
}

// planOf is the mutation that was decided on; inactive where there is none.
func planOf(a *rules.LockerAction) lockerPlan {
	if a == nil {
		return lockerPlan{}
	}
	p := lockerPlan{
		active: true, kind: indexOf(lockerKinds, string(a.Kind)), grant: grantOf(a.Grant), create: a.Lease == nil,
		status: steps[a.Status.Step], outcome: indexOf(outcomes, a.Status.Outcome), failures: int8(a.Status.Failures),
		carry: int8(a.Failures), removeNeeds: len(a.RemoveNeeds) > 0, unbacked: a.Unbacked, surplus: a.Surplus, elsewhere: a.Elsewhere, unnoticed: a.Unnoticed,
	}
	name, uid := "", ""
	switch {
	case a.Node != nil:
		name, uid = a.Node.Name, a.Node.UID
	default:
		name, uid = a.Lease.Holder, a.Lease.NodeUID
		p.gone = true
	}
	p.node, p.uid = int8(name[len(name)-1]-'a')+1, number(uid)
	return p
}

// requests are those of the real mutation.
func (p *lockerPlan) requests() []rules.LockerRequest {
	a := &rules.LockerAction{Kind: rules.LockerKind(lockerKinds[p.kind]), Surplus: p.surplus, Unbacked: p.unbacked, Elsewhere: p.elsewhere, Unnoticed: p.unnoticed, Node: &protocol.Node{}}
	if p.gone {
		a.Node = nil
	}
	return a.Requests()
}

var drainerKinds = []string{"", string(rules.Cordon), string(rules.Drain), string(rules.Restore)}

var dispatcherKinds = []string{
	"", string(rules.Intend), string(rules.MakeJob), string(rules.Prove), string(rules.StopJob), string(rules.Fail),
}
