package explore

import (
	"slices"

	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

// backed tells whether the slot's Lease agrees with a grant of a node.
func (s *state) backed(g grant, n, uid int8) bool {
	l := s.leases[g.window][g.slot]
	return g.turn != 0 && l.there && l.turn == g.turn && l.holder == n+1 && l.uid == uid
}

// drainersMove lets each drainer read and decide, write, or forget what it was about to
// do. What it reads before it writes (the node, then the Lease, then the pods) is read at
// once here: every write carries the node's resourceVersion, so of the reads before one
// that is not refused, all have seen the same node, and the last has seen the newest of
// the rest.
func (m *model) drainersMove() {
	for i := range m.o.Drainers {
		w := m.s.drainers[i]
		if w.active {
			m.drainerWrites(i, w)
			m.emit(func(s *state) { s.drainers[i] = worker{} }, "drainer %d gives up, or is killed", i)
			continue
		}
		for n := range int8(m.o.Nodes) {
			if m.s.nodes[n].there {
				m.drainerReads(i, n)
			}
		}
	}
}

func (m *model) drainerReads(i int, n int8) {
	node := &m.s.nodes[n]
	d := rules.DrainerDecide(node.real(n))
	g := grantOf(d.Grant)
	if d.Kind == rules.Nothing || d.Backed && m.o.Fault != TrustNotice && !m.s.backed(g, n, node.uid) {
		return
	}
	w := worker{
		active: true, kind: indexOf(drainerKinds, string(d.Kind)), node: n, uid: node.uid,
		grant: g, fresh: true, foreign: d.Foreign && m.o.Fault != ForgetForeign,
	}
	mean := func(w worker, what string) {
		m.emit(func(s *state) { s.drainers[i] = w }, "drainer %d reads %s and means to %s under %s", i, nodeName(n), what, d.Grant)
	}
	if d.Kind != rules.Drain || !m.s.hosts[n].evictable || m.o.Fault == DrainedFromCache {
		mean(w, string(d.Kind))
	}
	if d.Kind == rules.Drain || d.Kind == rules.Cordon && !node.ours() {
		// A drain can fail at any time, and be known to before the cordon: it times out,
		// a budget never allows it.
		w.fails = true
		mean(w, "give the drain up")
	}
}

func (m *model) drainerWrites(i int, w worker) {
	n := w.node
	stop := func(s *state) { s.drainers[i] = worker{} }
	write := func(to step, foreign bool, cordon func(*node)) func(*state) {
		return func(s *state) {
			node := &s.nodes[n]
			node.drainer.step, node.drainer.grant, node.drainer.foreign = to, w.grant, foreign
			if cordon != nil {
				cordon(node)
			}
		}
	}
	yes := func(n *node) { n.unschedulable = true }
	no := func(n *node) {
		if !w.foreign {
			n.unschedulable = false
		}
	}
	switch kind := rules.DrainerKind(drainerKinds[w.kind]); {
	case w.fails && kind == rules.Cordon:
		m.patch(n, w, write(failed, false, nil), stop, "drainer %d writes that %s cannot be drained", i, nodeName(n))
	case w.fails:
		m.patch(n, w, write(failed, false, no), stop, "drainer %d gives the drain of %s up and restores it", i, nodeName(n))
	case kind == rules.Cordon:
		m.patch(n, w, write(cordoned, w.foreign, yes), stop, "drainer %d cordons %s under %s", i, nodeName(n), w.grant.real())
	case kind == rules.Drain:
		m.patch(n, w, write(drained, w.foreign, nil), stop, "drainer %d writes that %s is drained under %s", i, nodeName(n), w.grant.real())
	case kind == rules.Restore:
		m.patch(n, w, write(restored, false, no), stop, "drainer %d restores %s after %s", i, nodeName(n), w.grant.real())
	}
}

// patch writes to a node where it is still as it was read. Whether the answer arrives
// makes no difference to those who read again before they act.
func (m *model) patch(n int8, w worker, write, then func(*state), format string, args ...any) {
	node := m.s.nodes[n]
	if !node.there || node.uid != w.uid || !w.fresh && m.o.Fault != OverwriteNode {
		m.emit(then, format+": no, it has changed", args...)
		return
	}
	m.emit(func(s *state) {
		s.wroteNode(n)
		write(s)
		then(s)
	}, format, args...)
}

// jobOf is the Job of a grant of a node, and where it is; -1 where there is none.
func (s *state) jobOf(n int8, g grant) (job, int8) {
	for k, j := range s.jobs[n] {
		if j.state != jobAbsent && j.grant == g {
			return j, int8(k)
		}
	}
	return job{}, -1
}

// dispatchersMove is as drainersMove. A dispatcher knows Jobs from a cache: it may not
// have seen one yet.
func (m *model) dispatchersMove() {
	for i := range m.o.Dispatchers {
		w := m.s.dispatchers[i]
		if w.active {
			m.dispatcherWrites(i, w)
			m.emit(func(s *state) { s.dispatchers[i] = worker{} }, "dispatcher %d gives up, or is killed", i)
			continue
		}
		for n := range int8(m.o.Nodes) {
			if m.s.nodes[n].there {
				m.dispatcherDecides(i, n)
			}
		}
	}
}

func (m *model) dispatcherDecides(i int, n int8) {
	real := m.s.nodes[n].real(n)
	g := grantOf(real.State.Current())
	if real.State.Rebooter.Step == protocol.Rebooting {
		g = grantOf(real.State.Rebooter.Grant)
	}
	if g == (grant{}) {
		return
	}
	actual, _ := m.s.jobOf(n, g)
	seen := []job{actual}
	if actual.state != jobAbsent {
		seen = append(seen, job{})
	}
	var decided []worker
	for _, j := range seen {
		for _, now := range []int{0, 1} {
			// Nobody is held up for half of the time that a reboot is given, and no two
			// clocks differ by that much.
			if now == 1 && m.s.makingJob(n, g) || now == 0 && m.s.hosts[n].late {
				continue
			}
			view := &rules.DispatcherView{
				Node: real, Timeout: later.Sub(then) / 2, Now: then, JobDeleting: j.deleting,
				Job: []rules.JobState{rules.JobAbsent, rules.JobActive, rules.JobSucceeded, rules.JobFailed}[j.state],
			}
			if now == 1 {
				view.Now = later
			}
			if m.o.Fault == BootAlone && real.State.Rebooter.Step == protocol.Rebooting && real.BootID != real.State.Rebooter.BootID {
				ready := *real
				ready.Ready = true
				view.Node = &ready
			}
			d := view.Decide()
			if d.Kind == rules.Wait {
				continue
			}
			w := worker{
				active: true, kind: indexOf(dispatcherKinds, string(d.Kind)), node: n, uid: m.s.nodes[n].uid,
				grant: grantOf(d.Grant), fresh: true, boot: m.s.nodes[n].boot,
			}
			if d.Kind == rules.MakeJob {
				w.boot = m.s.nodes[n].rebooter.boot
			}
			if d.Ended && m.o.Fault != FailEarly && actual.state == jobActive ||
				d.Backed && m.o.Fault != TrustNotice && !m.s.backed(w.grant, n, w.uid) || slices.Contains(decided, w) {
				continue
			}
			decided = append(decided, w)
			m.emit(func(s *state) {
				s.dispatchers[i] = w
				s.hosts[n].late = now == 1
			}, "dispatcher %d reads %s and means to %s under %s", i, nodeName(n), d.Kind, d.Grant)
		}
	}
}

func (m *model) dispatcherWrites(i int, w worker) {
	n := w.node
	stop := func(s *state) { s.dispatchers[i] = worker{} }
	status := func(to step, boot int8) func(*state) {
		return func(s *state) {
			r := &s.nodes[n].rebooter
			r.step, r.grant, r.boot = to, w.grant, boot
		}
	}
	switch rules.DispatcherKind(dispatcherKinds[w.kind]) {
	case rules.Intend:
		if m.o.Fault == JobFirst {
			m.makeJob(i, w, func(s *state) { s.dispatchers[i].kind = indexOf(dispatcherKinds, string(rules.Intend)) })
		}
		makes := func(s *state) {
			s.dispatchers[i].kind, s.dispatchers[i].fresh = indexOf(dispatcherKinds, string(rules.MakeJob)), true
		}
		if !w.fresh {
			makes = stop
		}
		m.patch(n, w, status(rebooting, w.boot), makes, "dispatcher %d writes that %s reboots under %s", i, nodeName(n), w.grant.real())
	case rules.MakeJob:
		m.makeJob(i, w, stop)
	case rules.Prove:
		m.patch(n, w, status(rebooted, 0), stop, "dispatcher %d writes that %s has rebooted under %s", i, nodeName(n), w.grant.real())
	case rules.Fail:
		m.patch(n, w, status(failed, 0), stop, "dispatcher %d writes that %s has not rebooted under %s", i, nodeName(n), w.grant.real())
	case rules.StopJob:
		_, k := m.s.jobOf(n, w.grant)
		m.emit(func(s *state) {
			if k >= 0 {
				s.jobs[n][k].deleting = true
			}
			stop(s)
		}, "dispatcher %d deletes the Job of %s", i, w.grant.real())
	}
}

// makingJob tells whether a dispatcher is about to make the Job of a grant.
func (s *state) makingJob(n int8, g grant) bool {
	for _, w := range s.dispatchers {
		if w.active && w.node == n && w.grant == g && dispatcherKinds[w.kind] == string(rules.MakeJob) {
			return true
		}
	}
	return false
}

// makeJob creates the Job of a grant, whose name nothing else can have. Nothing of the
// node is compared: that is why the intent is written first.
func (m *model) makeJob(i int, w worker, then func(*state)) {
	n := w.node
	free := int8(-1)
	for k, j := range m.s.jobs[n] {
		if j.state == jobAbsent {
			free = int8(k)
		} else if j.grant == w.grant {
			m.emit(then, "dispatcher %d finds the Job of %s there already", i, w.grant.real())
			return
		}
	}
	if free < 0 {
		m.emit(func(s *state) { s.bound = true; then(s) }, "the model ends here: %s has had too many Jobs", nodeName(n))
		return
	}
	m.emit(func(s *state) {
		s.jobs[n][free] = job{state: jobActive, grant: w.grant, boot: w.boot}
		then(s)
	}, "dispatcher %d makes the Job of %s, for %s", i, w.grant.real(), bootID(w.boot))
}

// patches tells that a dispatcher is about to write to the node, and nothing else.
func (w *worker) patches() bool {
	switch rules.DispatcherKind(dispatcherKinds[w.kind]) {
	case rules.Intend, rules.Prove, rules.Fail:
		return true
	}
	return false
}
