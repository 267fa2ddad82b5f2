package explore

import (
	"fmt"
	"time"

	"ganglion.dev/shared/rules"
)

// lockersMove lets each locker see something, decide, send its next request, or forget
// what it was about to do.
func (m *model) lockersMove() {
	for i := range m.o.Lockers {
		m.lockerSees(i)
		if !m.s.lockers[i].plan.active {
			m.lockerDecides(i)
			continue
		}
		m.lockerSends(i)
		m.emit(func(s *state) { s.lockers[i].plan = lockerPlan{} }, "locker %d gives up what it was about to do, or is killed", i)
	}
}

// lockerSees: a watch that is behind delivers what it has.
func (m *model) lockerSees(i int) {
	for _, k := range kinds {
		if m.s.lockers[i].behind(k) {
			m.emit(func(s *state) { s.lockers[i].see(&s.cluster, k) }, "locker %d sees the %s as they are", i, k)
		}
	}
}

// lockerDecides runs the real decision on what the locker has seen, now and when every
// wait is over, and with each node set aside after a failure.
func (m *model) lockerDecides(i int) {
	l := &m.s.lockers[i]
	for _, p := range m.decisions(&l.seen) {
		if p.status == granted && lockerKinds[p.kind] == string(rules.Take) && int(p.grant.turn) > m.o.Turns {
			m.emit(func(s *state) { s.bound = true }, "the model ends here: slot %s.%d has been taken %d times", windowName(p.grant.window), p.grant.slot, m.o.Turns)
			continue
		}
		p.freshNode = p.gone || l.fresh.nodes[p.node-1]
		p.freshLease = l.fresh.leases[p.grant.window][p.grant.slot]
		m.emit(func(s *state) { s.lockers[i].plan = p }, "locker %d decides to %s %s for %s", i, lockerKinds[p.kind], p.grant.real(), nodeName(p.node-1))
	}
}

// decisions are the different mutations that may be decided on from what was seen.
func (m *model) decisions(seen *cluster) []lockerPlan {
	if plans, is := m.decided[*seen]; is {
		return plans
	}
	var plans []lockerPlan
	add := func(p lockerPlan) {
		for _, q := range plans {
			if p == q {
				return
			}
		}
		if p.active {
			plans = append(plans, p)
		}
	}
	for _, now := range []time.Time{then, later} {
		for aside := int8(-1); aside < int8(m.o.Nodes); aside++ {
			action, _ := seen.view(&m.o, now, aside).Decide()
			add(planOf(m.o.plant(action, seen)))
		}
	}
	m.decided[*seen] = plans
	return plans
}

// plant replaces a decision by a faulty one, where that fault is planted.
func (o *Options) plant(a *rules.LockerAction, seen *cluster) *rules.LockerAction {
	if o.Fault == FreeEarly && a != nil && a.Kind == rules.Release && a.Lease != nil {
		return &rules.LockerAction{Kind: rules.Free, Lease: a.Lease, Grant: a.Grant, Node: a.Node}
	}
	if o.Fault == NeverFree && a != nil && a.Kind == rules.Free {
		return nil
	}
	return a
}

// lockerSends sends the next request of a mutation: it fails, or takes effect and its
// answer arrives or gets lost. An answer that is lost leaves the locker with what it had
// seen, and it decides anew.
func (m *model) lockerSends(i int) {
	p := m.s.lockers[i].plan
	requests := m.o.requests(&p)
	request := requests[p.next]
	told := fmt.Sprintf("locker %d: %s for %s: ", i, request, p.grant.real())
	last := int(p.next) == len(requests)-1
	goOn := func(s *state) {
		if last {
			s.lockers[i].plan = lockerPlan{}
			return
		}
		s.lockers[i].plan.next++
	}
	fails := func() { m.emit(func(s *state) { s.lockers[i].plan = lockerPlan{} }, "%sno", told) }
	current := m.s.leases[p.grant.window][p.grant.slot]
	backs := current.there && current.turn == p.grant.turn && current.holder == p.node && current.uid == p.uid
	holds := false
	switch request {
	case rules.CountSlots:
		held := 0
		for slot := range maxSlots {
			if m.s.leases[p.grant.window][slot].holder != 0 {
				held++
			}
		}
		holds = held < m.o.Cap
	case rules.FindBacked:
		holds = backs
	case rules.FindUnbacked:
		holds = !backs
	case rules.FindHolderGone:
		n := m.s.nodes[p.node-1]
		holds = !n.there || n.uid != p.uid
	case rules.FindElsewhere:
		n := m.s.nodes[p.node-1]
		holds = !n.there || n.uid != p.uid || n.current().turn != 0 && n.current() != p.grant
	case rules.WriteSlot:
		m.lockerWritesSlot(i, p, told, goOn, fails)
		return
	case rules.WriteNode:
		m.lockerWritesNode(i, p, told, goOn, fails)
		return
	}
	if !holds {
		fails()
		return
	}
	m.emit(goOn, "%syes", told)
}

func (m *model) lockerWritesSlot(i int, p lockerPlan, told string, goOn func(*state), fails func()) {
	w, slot := p.grant.window, p.grant.slot
	current := m.s.leases[w][slot]
	ok := p.freshLease && current.there || m.o.Fault == OverwriteLease
	if p.create {
		ok = !current.there
	}
	if !ok {
		fails()
		return
	}
	write := func(s *state) {
		s.wroteLease(w, slot)
		l := &s.leases[w][slot]
		if lockerKinds[p.kind] == string(rules.Free) {
			*l = lease{there: true, turn: l.turn}
		} else {
			*l = lease{there: true, holder: p.node, uid: p.uid, turn: p.grant.turn, failures: p.carry}
		}
	}
	m.emit(func(s *state) {
		write(s)
		s.lockers[i].seen.leases[w][slot], s.lockers[i].fresh.leases[w][slot] = s.leases[w][slot], true
		goOn(s)
	}, "%sdone", told)
	if m.s.lag > 0 {
		m.emit(func(s *state) { write(s); s.lockers[i].plan = lockerPlan{} }, "%sdone, and the answer is lost", told)
	}
}

func (m *model) lockerWritesNode(i int, p lockerPlan, told string, goOn func(*state), fails func()) {
	n := p.node - 1
	ok := m.s.nodes[n].there && m.s.nodes[n].uid == p.uid
	if !ok || !p.freshNode && m.o.Fault != OverwriteNode {
		fails()
		return
	}
	write := func(s *state) {
		s.wroteNode(n)
		node := &s.nodes[n]
		s.hosts[n].forged = s.hosts[n].forged && p.status == revoked
		node.locker.step, node.locker.grant = p.status, p.grant
		node.locker.outcome, node.locker.failures = p.outcome, p.failures
		if p.removeNeeds {
			node.need = 0
		}
	}
	m.emit(func(s *state) {
		write(s)
		s.lockers[i].seen.nodes[n], s.lockers[i].fresh.nodes[n] = s.nodes[n], true
		goOn(s)
	}, "%sdone", told)
	if m.s.lag > 0 {
		m.emit(func(s *state) { write(s); s.lockers[i].plan = lockerPlan{} }, "%sdone, and the answer is lost", told)
	}
}

// doomed tells that no request of the mutation can have any effect any more.
func (p *lockerPlan) doomed() bool {
	if !p.active {
		return false
	}
	for _, request := range p.requests()[p.next:] {
		switch request {
		case rules.WriteSlot:
			return !p.create && !p.freshLease
		case rules.WriteNode:
			return !p.freshNode
		}
	}
	return false
}
