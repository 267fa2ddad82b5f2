package explore

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// The bounds of every state. A state is a value without pointers, so that it can be
// compared and be the key of a map.
const (
	maxNodes   = 3
	maxSlots   = 2 // of a window
	maxWindows = 2
	maxJobs    = 3 // of a node, of different grants
	maxActors  = 2 // lockers, drainers, dispatchers: of each
)

// grant is a protocol.Grant; its turn is 0 where there is none.
type grant struct{ window, slot, turn int8 }

// step is that of a status; 0 where it is absent.
type step int8

const (
	absent step = iota
	granted
	revoked
	released
	cordoned
	drained
	restored
	rebooting
	rebooted
	failed
)

// node is a Node object.
type node struct {
	there         bool
	uid           int8
	unschedulable bool
	ready         bool
	boot          int8 // the boot id
	need          int8 // 0: none; otherwise 1 + the boot in which it was raised
	hold          bool

	locker struct {
		step     step
		grant    grant
		outcome  int8
		failures int8
	}
	drainer struct {
		step    step
		grant   grant
		foreign bool
	}
	rebooter struct {
		step  step
		grant grant
		boot  int8
	}
}

// lease is the Lease of a slot.
type lease struct {
	there    bool
	holder   int8 // 0: free; otherwise 1 + the node
	uid      int8
	turn     int8
	failures int8
}

// window is a NodesMaintenanceWindow. All of them select all nodes; the first goes
// first.
type window struct {
	there     bool
	suspended bool
}

// job is a reboot Job with its pod.
type job struct {
	state    int8
	deleting bool
	grant    grant
	boot     int8 // the boot that it is meant for
}

// The states of a Job.
const (
	jobAbsent int8 = iota
	jobActive
	jobSucceeded
	jobFailed
)

// host is what a Node object stands for, and what the checks remember of it.
type host struct {
	down bool
	boot int8
	// evictable: a pod that a drain has to evict is on it.
	evictable bool
	// foreign: an admin has cordoned it.
	foreign bool
	// late: half of the time that its reboot is given is over, by any dispatcher's clock.
	late bool
	// forged: the grant on the node is none that a locker wrote.
	forged bool
	// fired is the grant whose Job rebooted it last.
	fired grant
}

// cluster is what the API server has.
type cluster struct {
	nodes   [maxNodes]node
	leases  [maxWindows][maxSlots]lease
	windows [maxWindows]window
}

// fresh tells which of the objects that somebody has seen are still as they were. It
// stands for the comparison of resourceVersions.
type fresh struct {
	nodes   [maxNodes]bool
	leases  [maxWindows][maxSlots]bool
	windows [maxWindows]bool
}

// kind is one of the kinds of objects that a locker watches. Each has a watch of its own,
// which delivers what it has in order.
type kind int

const (
	nodes kind = iota
	leases
	windows
)

var kinds = []kind{nodes, leases, windows}

// String is the kind's plural.
func (k kind) String() string { return []string{"Nodes", "Leases", "windows"}[k] }

// locker is a replica of the locker that believes to lead: what it has seen, which may
// be old, and the mutation that it is about to make.
type locker struct {
	seen  cluster
	fresh fresh
	plan  lockerPlan
}

// lockerPlan is a mutation in progress.
type lockerPlan struct {
	active bool
	kind   int8
	next   int8 // the request that is next
	node   int8 // 1 + the node; 0: none
	uid    int8
	grant  grant
	// create: the slot has no Lease yet.
	create bool
	// status is what to write to the node.
	status      step
	outcome     int8
	failures    int8 // of status
	carry       int8 // failures, into the Lease
	removeNeeds bool
	unbacked    bool
	surplus     bool
	gone        bool // the node is believed to be gone
	unnoticed   bool // the node does not say that it has the slot
	elsewhere   bool // it is believed to be under another grant
	freshNode   bool
	freshLease  bool
}

// worker is a replica of the drainer or of the dispatcher, which works at a node: it has
// read it, and is about to write to it.
type worker struct {
	active bool
	kind   int8
	node   int8
	uid    int8
	grant  grant
	fresh  bool // the node is still as it was read
	fails  bool // it means to give the drain up
	// of the drainer
	foreign bool
	// of the dispatcher
	boot int8
}

// state is everything.
type state struct {
	cluster
	hosts       [maxNodes]host
	jobs        [maxNodes][maxJobs]job
	lockers     [maxActors]locker
	drainers    [maxActors]worker
	dispatchers [maxActors]worker
	// lag is how many more times a locker may go on with what it has seen of an object
	// that has changed.
	lag int8
	// mischief is how much more may happen that nobody is to be blamed for.
	mischief int8
	// bound: a limit of the model was reached, and something that could go on does not.
	bound bool
	// broken is the promise that the last move broke.
	broken *violation
}

var seed, seed2 = maphash.MakeSeed(), maphash.MakeSeed()

// hash stands for a state: that two of a billion have the same is less likely than that
// the machine is broken.
func (s *state) hash() [2]uint64 {
	return [2]uint64{maphash.Comparable(seed, *s), maphash.Comparable(seed2, *s)}
}

// tidy makes equal what differs in nothing that matters: a mutation whose every write
// would be refused is given up, and what nothing can depend on any more is dropped.
func (s *state) tidy(o *Options) {
	overwrite := o.Fault == OverwriteNode || o.Fault == OverwriteLease
	for i := range s.lockers {
		if !overwrite && s.lockers[i].plan.doomed() {
			s.lockers[i].plan = lockerPlan{}
		}
	}
	for i := range s.drainers {
		if w := &s.drainers[i]; w.active && !w.fresh && !overwrite {
			*w = worker{}
		}
	}
	for i := range s.dispatchers {
		if w := &s.dispatchers[i]; w.active && !w.fresh && w.patches() && !overwrite {
			*w = worker{}
		}
	}
	for n := range s.nodes {
		s.forget(int8(n))
		s.renumber(int8(n))
	}
}

// canonical is one of the states that differ in the order of replicas alone.
func (s *state) canonical(o *Options) {
	if o.Lockers == 2 && maphash.Comparable(seed, s.lockers[0]) > maphash.Comparable(seed, s.lockers[1]) {
		s.lockers[0], s.lockers[1] = s.lockers[1], s.lockers[0]
	}
	if d := &s.drainers; o.Drainers == 2 && maphash.Comparable(seed, d[0]) > maphash.Comparable(seed, d[1]) {
		d[0], d[1] = d[1], d[0]
	}
	if d := &s.dispatchers; o.Dispatchers == 2 && maphash.Comparable(seed, d[0]) > maphash.Comparable(seed, d[1]) {
		d[0], d[1] = d[1], d[0]
	}
}

// forget drops what nothing can depend on any more: the records of Jobs that have ended,
// and which grant rebooted the host, once that grant's reboot is over.
func (s *state) forget(n int8) {
	r := s.nodes[n].rebooter
	for k := range s.jobs[n] {
		j := &s.jobs[n][k]
		over := j.state != jobAbsent && j.state != jobActive && (r.step != rebooting || r.grant != j.grant) && !s.makingJob(n, j.grant)
		if over {
			*j = job{}
		}
	}
	slices.SortFunc(s.jobs[n][:], func(a, b job) int {
		return cmp.Or(-cmp.Compare(a.state, b.state), cmp.Compare(a.grant.window, b.grant.window),
			cmp.Compare(a.grant.slot, b.grant.slot), cmp.Compare(a.grant.turn, b.grant.turn))
	})
	if r.step != rebooting {
		s.hosts[n].late = false
	}
	fired := s.hosts[n].fired
	if _, k := s.jobOf(n, fired); k < 0 && (r.step != rebooting || r.grant != fired) && !s.makingJob(n, fired) {
		s.hosts[n].fired = grant{}
	}
}

// renumber gives the boots of a host the least numbers in the same order: nothing else of
// them matters.
func (s *state) renumber(n int8) {
	var boots []*int8
	of := func(node *node) {
		boots = append(boots, &node.boot)
		if node.rebooter.step == rebooting {
			boots = append(boots, &node.rebooter.boot)
		}
	}
	boots = append(boots, &s.hosts[n].boot)
	of(&s.nodes[n])
	for i := range s.lockers {
		of(&s.lockers[i].seen.nodes[n])
	}
	for k := range s.jobs[n] {
		if s.jobs[n][k].state != jobAbsent {
			boots = append(boots, &s.jobs[n][k].boot)
		}
	}
	for i := range s.dispatchers {
		if w := &s.dispatchers[i]; w.active && w.node == n {
			boots = append(boots, &w.boot)
		}
	}
	needs := []*int8{&s.nodes[n].need}
	for i := range s.lockers {
		needs = append(needs, &s.lockers[i].seen.nodes[n].need)
	}
	var there [16]bool
	for _, b := range boots {
		there[*b] = true
	}
	for _, b := range needs {
		if *b != 0 {
			there[*b-1] = true
		}
	}
	var to [16]int8
	next := int8(0)
	for b := range there {
		to[b] = next
		if there[b] {
			next++
		}
	}
	for _, b := range boots {
		*b = to[*b]
	}
	for _, b := range needs {
		if *b != 0 {
			*b = to[*b-1] + 1
		}
	}
}

// wroteNode makes what everybody has seen of the node old.
func (s *state) wroteNode(n int8) {
	for i := range s.lockers {
		s.lockers[i].fresh.nodes[n] = false
		if p := &s.lockers[i].plan; p.node == n+1 {
			p.freshNode = false
		}
	}
	for _, workers := range []*[maxActors]worker{&s.drainers, &s.dispatchers} {
		for i := range workers {
			if workers[i].active && workers[i].node == n {
				workers[i].fresh = false
			}
		}
	}
}

// wroteLease makes what everybody has seen of the Lease old.
func (s *state) wroteLease(window, slot int8) {
	for i := range s.lockers {
		s.lockers[i].fresh.leases[window][slot] = false
		if p := &s.lockers[i].plan; p.active && p.grant.window == window && p.grant.slot == slot {
			p.freshLease = false
		}
	}
}

// wroteWindow makes what everybody has seen of the window old.
func (s *state) wroteWindow(window int8) {
	for i := range s.lockers {
		s.lockers[i].fresh.windows[window] = false
	}
}

// see has a locker see what of one kind is not as it has seen it.
func (l *locker) see(c *cluster, k kind) {
	switch k {
	case nodes:
		l.seen.nodes, l.fresh.nodes = c.nodes, allFresh().nodes
	case leases:
		l.seen.leases, l.fresh.leases = c.leases, allFresh().leases
	case windows:
		l.seen.windows, l.fresh.windows = c.windows, allFresh().windows
	}
}

// behind tells whether something of one kind is not as the locker has seen it.
func (l *locker) behind(k kind) bool {
	switch k {
	case nodes:
		return l.fresh.nodes != allFresh().nodes
	case leases:
		return l.fresh.leases != allFresh().leases
	}
	return l.fresh.windows != allFresh().windows
}

func allFresh() (f fresh) {
	for n := range f.nodes {
		f.nodes[n] = true
	}
	for w := range f.leases {
		f.windows[w] = true
		for s := range f.leases[w] {
			f.leases[w][s] = true
		}
	}
	return f
}

// news tells of which kinds a locker saw everything as it was before, and does not now.
func (l *locker) news(before *locker) (news []kind) {
	for _, k := range kinds {
		if l.behind(k) && !before.behind(k) {
			news = append(news, k)
		}
	}
	return news
}
