package explore

// worldMoves lets hosts, kubelets, pods, Jobs, detectors and admins do what they do.
func (m *model) worldMoves() {
	for n := range int8(m.o.Nodes) {
		m.hostMoves(n)
		m.jobsMove(n)
		if m.s.mischief > 0 {
			m.mischief(n)
		}
	}
	if m.s.mischief == 0 {
		return
	}
	for w := range int8(m.o.Windows) {
		if !m.s.windows[w].there {
			continue
		}
		m.mischievous(func(s *state) { s.wroteWindow(w); s.windows[w].suspended = !s.windows[w].suspended }, "an admin suspends or resumes %s", windowName(w))
		m.mischievous(func(s *state) { s.wroteWindow(w); s.windows[w] = window{} }, "an admin deletes %s", windowName(w))
	}
}

// hostMoves: a host that is down comes up, and its kubelet says so in two writes; the
// detector takes back a need that the reboot has served; pods leave a drained node.
func (m *model) hostMoves(n int8) {
	h, node := m.s.hosts[n], m.s.nodes[n]
	write := func(change func(*state)) func(*state) {
		return func(s *state) { s.wroteNode(n); change(s) }
	}
	if h.down {
		if h.boot >= 12 {
			m.emit(func(s *state) { s.bound = true }, "the model ends here: %s has rebooted often", nodeName(n))
		} else {
			m.emit(func(s *state) { s.hosts[n].down = false; s.hosts[n].boot++ }, "the host of %s comes up", nodeName(n))
		}
		if node.there && node.ready {
			m.emit(write(func(s *state) { s.nodes[n].ready = false }), "%s is found not Ready", nodeName(n))
		}
	}
	if !node.there || h.down {
		return
	}
	if node.boot != h.boot {
		m.emit(write(func(s *state) { s.nodes[n].boot = h.boot }), "the kubelet of %s reports its boot id", nodeName(n))
	} else if !node.ready {
		m.emit(write(func(s *state) { s.nodes[n].ready = true }), "the kubelet of %s reports Ready", nodeName(n))
	}
	if node.need != 0 && node.need-1 < h.boot {
		m.emit(write(func(s *state) { s.nodes[n].need = 0 }), "the detector of %s finds no sentinel any more", nodeName(n))
	}
	if h.evictable && node.ours() && node.unschedulable {
		m.emit(func(s *state) { s.hosts[n].evictable = false }, "the pods leave %s", nodeName(n))
	}
}

// jobsMove: a pod of a Job reboots its host, once it runs, where that is still in the
// boot that it is meant for; a pod that finds another boot ends; a Job that was deleted
// in the foreground goes when its pod has been stopped.
func (m *model) jobsMove(n int8) {
	for k, j := range m.s.jobs[n] {
		if j.state == jobAbsent {
			continue
		}
		h := m.s.hosts[n]
		if j.state == jobActive && !h.down && m.s.nodes[n].there {
			if h.boot == j.boot || m.o.Fault == NoGuard {
				m.emit(func(s *state) {
					s.hosts[n].down = true
					s.fire(n, j)
				}, "the Job of %s reboots the host of %s", j.grant.real(), nodeName(n))
			} else {
				m.emit(func(s *state) { s.jobs[n][k].state = jobFailed }, "the pod of the Job of %s ends", j.grant.real())
			}
		}
		if j.state == jobActive && !m.s.nodes[n].there {
			m.emit(func(s *state) { s.jobs[n][k].state = jobFailed }, "the pod of the Job of %s is gone with its node", j.grant.real())
		}
		if j.deleting && (j.state != jobActive || !h.down) {
			m.emit(func(s *state) { s.jobs[n][k] = job{} }, "the Job of %s is gone", j.grant.real())
		}
	}
}

func (m *model) mischievous(change func(*state), format string, args ...any) {
	m.emit(func(s *state) { s.mischief--; change(s) }, format, args...)
}

// mischief is what happens to a node that is nobody's doing here.
func (m *model) mischief(n int8) {
	h, node := m.s.hosts[n], m.s.nodes[n]
	name := nodeName(n)
	if !h.down && h.boot < 12 {
		m.mischievous(func(s *state) { s.hosts[n].down = true }, "the power of %s fails", name)
	}
	if !node.there {
		m.mischievous(func(s *state) {
			s.wroteNode(n)
			s.nodes[n] = node2(s, n)
		}, "%s is made again, as another object", name)
		return
	}
	write := func(change func(*state)) func(*state) {
		return func(s *state) { s.wroteNode(n); change(s) }
	}
	// Its pods are deleted with it. While it reboots it is only deleted where it is down:
	// otherwise a Job that is made at that moment reboots what is another node by then.
	if node.rebooter.step != rebooting || h.down {
		m.mischievous(write(func(s *state) {
			s.nodes[n] = emptied(s.nodes[n])
			for k := range s.jobs[n] {
				if s.jobs[n][k].state == jobActive {
					s.jobs[n][k].state = jobFailed
				}
			}
		}), "the Node object %s is deleted", name)
	}
	m.mischievous(write(func(s *state) { s.nodes[n].hold = !s.nodes[n].hold }), "an admin holds %s, or lifts that", name)
	if l := m.s.leases[0][0]; node.current().turn == 0 && l.holder != 0 && l.holder != n+1 {
		// A kubelet may write the annotations of its own node.
		m.mischievous(write(func(s *state) {
			s.nodes[n].locker.step, s.nodes[n].locker.grant, s.hosts[n].forged = granted, grant{turn: l.turn}, true
			s.nodes[n].locker.outcome, s.nodes[n].locker.failures = 0, 0
		}), "somebody writes the grant of another node on %s", name)
	}
	if node.need != 0 {
		m.mischievous(write(func(s *state) { s.nodes[n].need = 0 }), "the need of %s vanishes", name)
	} else {
		m.mischievous(write(func(s *state) { s.nodes[n].need = 1 + s.hosts[n].boot }), "%s becomes needy", name)
	}
	if node.ready && !h.down {
		m.mischievous(write(func(s *state) { s.nodes[n].ready = false }), "%s is not Ready for a while", name)
	}
	// An admin who uncordons a node whose reboot has begun will see it go down.
	if node.unschedulable && node.rebooter.step != rebooting {
		m.mischievous(write(func(s *state) { s.nodes[n].unschedulable, s.hosts[n].foreign = false, false }), "an admin uncordons %s", name)
	}
	if !node.unschedulable && !h.evictable && node.ready {
		m.mischievous(func(s *state) { s.hosts[n].evictable = true }, "a pod appears on %s", name)
	}
	for k, j := range m.s.jobs[n] {
		if j.state == jobActive && !h.down {
			m.mischievous(func(s *state) { s.jobs[n][k].state = jobSucceeded }, "the Job of %s ends, and nothing has happened", j.grant.real())
		}
		if j.state != jobAbsent && j.state != jobActive {
			m.mischievous(func(s *state) { s.jobs[n][k] = job{} }, "the record of the Job of %s is deleted", j.grant.real())
		}
	}
}

// emptied is what is left of a Node object that was deleted: its UID, never given again.
func emptied(old node) node { return node{uid: old.uid} }

// node2 is a Node object that is made again for the same host.
func node2(s *state, n int8) node {
	s.hosts[n].foreign, s.hosts[n].forged = false, false
	return node{there: true, uid: s.nodes[n].uid + 1, boot: s.hosts[n].boot, need: 1 + s.hosts[n].boot}
}
