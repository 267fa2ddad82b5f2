package explore

import (
	"fmt"
	"strings"
)

// Result is what an exploration found.
type Result struct {
	// States is how many distinct states were reached, Moves how many moves between them.
	States, Moves int
	// Complete: all states within the bounds were reached.
	Complete bool
	// Broken is the promise that was broken, empty where none was; Story tells how, in
	// the fewest moves.
	Broken Invariant
	Story  []string
}

// String is the result in a few lines.
func (r Result) String() string {
	text := fmt.Sprintf("%d states, %d moves", r.States, r.Moves)
	if !r.Complete {
		text += " (the limit was reached)"
	}
	if r.Broken == "" {
		return text + ": no promise is broken"
	}
	return text + fmt.Sprintf(": %s is broken:\n  %s", r.Broken, strings.Join(r.Story, "\n  "))
}

// model has the state whose moves are being listed.
type model struct {
	o       Options
	s       state
	decided map[cluster][]lockerPlan
	// take is handed each state that a move leads to.
	take func(next state, tell func() string)
}

// emit is a move: what it changes, and how it is told. A locker whose watch has not
// delivered the change yet is a move of its own.
func (m *model) emit(change func(*state), format string, args ...any) {
	next := m.s
	change(&next)
	m.watch(next, 0, func() string { return fmt.Sprintf(format, args...) })
}

// watch has the lockers from i on see what has changed, or not.
func (m *model) watch(next state, i int, tell func() string) {
	if i == m.o.Lockers {
		m.take(next, tell)
		return
	}
	news := next.lockers[i].news(&m.s.lockers[i])
	if len(news) > 0 && next.lag > 0 {
		behind := next
		behind.lag--
		m.watch(behind, i+1, func() string { return fmt.Sprintf("%s; locker %d does not see it yet", tell(), i) })
	}
	for _, k := range news {
		next.lockers[i].see(&next.cluster, k)
	}
	m.watch(next, i+1, tell)
}

// moves lists every move from a state.
func (m *model) moves(s state, take func(next state, tell func() string)) {
	if s.bound {
		return
	}
	m.s, m.take = s, take
	m.lockersMove()
	m.drainersMove()
	m.dispatchersMove()
	m.worldMoves()
}

// start is the first state: all nodes needy, with pods to evict, nothing seen by anybody.
func (o *Options) start() state {
	var s state
	for n := range o.Nodes {
		s.nodes[n] = node{there: true, ready: true, need: 1, unschedulable: n < o.Foreign}
		s.hosts[n] = host{evictable: true, foreign: n < o.Foreign}
	}
	for w := range o.Windows {
		s.windows[w] = window{there: true}
	}
	for i := range o.Lockers {
		s.lockers[i].seen = s.cluster
		s.lockers[i].fresh = allFresh()
	}
	s.mischief, s.lag = int8(o.Mischief), int8(o.Lag)
	return s
}

// Explore searches breadth first, so that the story of what it finds is the shortest. Once
// all states are known it looks for one from which the end cannot be reached.
func Explore(o Options) Result {
	m := &model{o: o, decided: map[cluster][]lockerPlan{}}
	first := o.start()
	first.canonical(&m.o)
	known := map[[2]uint64]int32{first.hash(): 0}
	states := []state{first}
	parents := []int32{-1}
	var from, to []int32 // moves
	var r Result
	for i := 0; i < len(states); i++ {
		if len(states) >= o.Limit {
			break
		}
		before := states[i]
		m.moves(before, func(next state, _ func() string) {
			if r.Broken != "" {
				return
			}
			if v := m.check(&before, &next); v.invariant != "" {
				r.Broken = v.invariant
				r.Story = append(m.story(states, parents, int32(i), &next), "so "+v.text)
				return
			}
			next.tidy(&m.o)
			next.canonical(&m.o)
			hash := next.hash()
			j, is := known[hash]
			if !is {
				j = int32(len(states))
				known[hash] = j
				states, parents = append(states, next), append(parents, int32(i))
			}
			from, to = append(from, int32(i)), append(to, j)
		})
		if r.Broken != "" {
			break
		}
		r.Complete = i == len(states)-1
	}
	r.States, r.Moves = len(states), len(to)
	if r.Broken == "" && r.Complete {
		if stuck := m.stuck(states, from, to); stuck >= 0 {
			r.Broken = Progress
			r.Story = append(m.story(states, parents, stuck, nil), "and from here the end cannot be reached")
		}
	}
	return r
}

// stuck is the first state from which no state that is done can be reached; -1 where there
// is none.
func (m *model) stuck(states []state, from, to []int32) int32 {
	// The moves backwards, as one list in which each state has its part.
	starts := make([]int32, len(states)+1)
	for _, j := range to {
		starts[j+1]++
	}
	for i := range states {
		starts[i+1] += starts[i]
	}
	back, at := make([]int32, len(to)), append([]int32(nil), starts...)
	for k, j := range to {
		back[at[j]] = from[k]
		at[j]++
	}
	reaches := make([]bool, len(states))
	var queue []int32
	for i := range states {
		if m.done(&states[i]) {
			reaches[i] = true
			queue = append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		j := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, i := range back[starts[j]:starts[j+1]] {
			if !reaches[i] {
				reaches[i] = true
				queue = append(queue, i)
			}
		}
	}
	for i, r := range reaches {
		if !r {
			return int32(i)
		}
	}
	return -1
}

// story tells the moves that led to a state, and the last one to a state that broke a
// promise. It goes through them once more, so that each replica keeps its number.
func (m *model) story(states []state, parents []int32, i int32, broke *state) []string {
	var path []state
	for ; i > 0; i = parents[i] {
		path = append([]state{states[i]}, path...)
	}
	if broke != nil {
		last := *broke
		last.tidy(&m.o)
		last.canonical(&m.o)
		path = append(path, last)
	}
	now := states[0]
	var told []string
	for _, want := range path {
		want.broken = nil
		found := false
		n := &model{o: m.o, decided: m.decided}
		from := now
		n.moves(from, func(next state, tell func() string) {
			if found {
				return
			}
			next.tidy(&m.o)
			next.broken = nil
			same := next
			same.canonical(&m.o)
			if same == want {
				found, now = true, next
				told = append(told, tell())
			}
		})
	}
	return told
}
