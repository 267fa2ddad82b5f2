package explore

import (
	"flag"
	"testing"
	"unsafe"
)

var prove = flag.Bool("prove", false, "explore millions of states, for minutes")

// explorations are what every run explores, within seconds: nearly all are complete.
var explorations = map[string]Options{
	"one node, two of everything":            {Nodes: 1, Cap: 1, Lockers: 2, Drainers: 2, Dispatchers: 1, Turns: 2, Lag: 1},
	"one node that was cordoned, and admins": {Nodes: 1, Cap: 1, Lockers: 1, Drainers: 1, Dispatchers: 1, Turns: 1, Mischief: 2, Foreign: 1},
	"two nodes, one slot":                    {Nodes: 2, Cap: 1, Lockers: 1, Drainers: 1, Dispatchers: 1, Turns: 2},
	"two nodes, two slots, an old view":      {Nodes: 2, Cap: 2, Lockers: 1, Drainers: 1, Dispatchers: 1, Turns: 1, Lag: 1},
	"two nodes, one slot, an admin":          {Nodes: 2, Cap: 1, Lockers: 1, Drainers: 1, Dispatchers: 1, Turns: 1, Mischief: 1},
}

// proofs are what make prove explores beyond that.
var proofs = map[string]Options{
	"one node, two of everything, admins, old views": {Nodes: 1, Cap: 1, Lockers: 2, Drainers: 2, Dispatchers: 2, Turns: 2, Lag: 1, Mischief: 1},
	"one node, two lockers, very old views":          {Nodes: 1, Cap: 1, Lockers: 2, Drainers: 1, Dispatchers: 1, Turns: 2, Lag: 2, Mischief: 1},
	"two nodes, two workers of each kind, admins":    {Nodes: 2, Cap: 1, Lockers: 1, Drainers: 2, Dispatchers: 2, Turns: 1, Mischief: 2},
	"two nodes, two lockers, admins, old views":      {Nodes: 2, Cap: 1, Lockers: 2, Drainers: 1, Dispatchers: 1, Turns: 1, Lag: 1, Mischief: 1},
	"two nodes, two slots, two lockers, old views":   {Nodes: 2, Cap: 2, Lockers: 2, Drainers: 1, Dispatchers: 1, Turns: 2, Lag: 1},
	"two nodes, two windows, admins, old views":      {Nodes: 2, Windows: 2, Cap: 1, Lockers: 1, Drainers: 1, Dispatchers: 1, Turns: 1, Lag: 1, Mischief: 1},
	"three nodes, two slots, an admin":               {Nodes: 3, Cap: 2, Lockers: 1, Drainers: 1, Dispatchers: 1, Turns: 1, Mischief: 1},
	"two nodes whose absence does not count":         {Nodes: 2, Cap: 2, Lockers: 2, Drainers: 1, Dispatchers: 1, Turns: 1, Lag: 1, IgnoreUnavailable: true},
}

func TestNoPromiseIsBrokenInAnyState(t *testing.T) {
	lists, limit := []map[string]Options{explorations}, 70_000
	if *prove {
		lists, limit = append(lists, proofs), 3_000_000
	}
	total := 0
	for _, list := range lists {
		for name, o := range list {
			t.Run(name, func(t *testing.T) {
				o.Windows, o.Limit = max(o.Windows, 1), limit
				r := Explore(o)
				if r.Broken != "" {
					t.Error(r)
				}
				t.Log(r)
				total += r.States
			})
		}
	}
	t.Logf("%d states of %d bytes", total, unsafe.Sizeof(state{}))
}

// faults is what each planted fault breaks, and the least that has to happen for that.
var faults = map[Fault]struct {
	o      Options
	breaks Invariant
}{
	NoticeFirst:      {Options{Nodes: 2, Lockers: 2, Lag: 1}, NoLostSlot},
	BelieveGone:      {Options{Nodes: 1, Lockers: 2, Lag: 1, Mischief: 2}, NoLostSlot},
	BelieveElsewhere: {Options{Nodes: 1, Lockers: 2, Lag: 1}, NoLostSlot},
	OverwriteLease:   {Options{Nodes: 2, Lockers: 2, Lag: 1}, NoLostSlot},
	OverwriteNode:    {Options{Nodes: 1, Lockers: 1, Mischief: 1}, DrainedFirst},
	FreeEarly:        {Options{Nodes: 2, Lockers: 1}, NoLostSlot},
	JobFirst:         {Options{Nodes: 1, Lockers: 1, Mischief: 1}, DrainedFirst},
	FailEarly:        {Options{Nodes: 1, Lockers: 1}, DrainedFirst},
	NoGuard:          {Options{Nodes: 1, Lockers: 1}, AtMostOnce},
	DrainedFromCache: {Options{Nodes: 1, Lockers: 1}, DrainedFirst},
	TrustNotice:      {Options{Nodes: 2, Lockers: 1, Mischief: 1}, DrainedFirst},
	ForgetForeign:    {Options{Nodes: 1, Lockers: 1, Foreign: 1}, OwnCordonOnly},
	BootAlone:        {Options{Nodes: 1, Lockers: 1}, Proof},
	NeverFree:        {Options{Nodes: 1, Lockers: 1}, Progress},
}

func TestEveryPlantedFaultIsFound(t *testing.T) {
	for _, fault := range Faults {
		c, is := faults[fault]
		if !is {
			t.Errorf("%s: not tried", fault)
			continue
		}
		t.Run(string(fault), func(t *testing.T) {
			o := c.o
			o.Windows, o.Cap, o.Drainers, o.Dispatchers, o.Turns, o.Limit, o.Fault = 1, 1, 1, 1, 2, 600_000, fault
			r := Explore(o)
			if r.Broken != c.breaks || len(r.Story) == 0 {
				t.Errorf("want %s broken; %s", c.breaks, r)
			}
			t.Log(r)
		})
	}
}
