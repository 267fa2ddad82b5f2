package rules

import (
	"fmt"
	"testing"
	"time"

	"ganglion.dev/shared/protocol"
)

func cordoned(n *protocol.Node) *protocol.Node {
	return with(n, func(n *protocol.Node) { n.Unschedulable = true })
}

func TestWhatTheDrainerDecides(t *testing.T) {
	long := "2026-11-01T00:00:00Z"
	for name, c := range map[string]struct {
		node *protocol.Node
		want string
	}{
		"no grant":                          {node("a", "x", ""), ""},
		"granted":                           {node("a", "locker", "granted w.0.1"), "cordon w.0.1 backed"},
		"granted, and cordoned by somebody": {cordoned(node("a", "locker", "granted w.0.1")), "cordon w.0.1 foreign backed"},
		"cordoned":                          {cordoned(node("a", "locker", "granted w.0.1", "drainer", "cordoned w.0.1")), "drain w.0.1 backed"},
		"cordoned, foreign":                 {cordoned(node("a", "locker", "granted w.0.1", "drainer", "cordoned w.0.1 foreign")), "drain w.0.1 foreign backed"},
		"somebody undid the cordon":         {node("a", "locker", "granted w.0.1", "drainer", "cordoned w.0.1"), "cordon w.0.1 backed"},
		"somebody undid it after the drain": {node("a", "locker", "granted w.0.1", "drainer", "drained w.0.1"), "cordon w.0.1 backed"},
		"drained":                           {cordoned(node("a", "locker", "granted w.0.1", "drainer", "drained w.0.1")), ""},
		"rebooting":                         {cordoned(node("a", "locker", "granted w.0.1", "drainer", "drained w.0.1", "rebooter", "rebooting w.0.1 b "+long)), ""},
		"rebooted":                          {cordoned(node("a", "locker", "granted w.0.1", "drainer", "drained w.0.1", "rebooter", "rebooted w.0.1")), "restore w.0.1"},
		"rebooted, the cordon is foreign":   {cordoned(node("a", "locker", "granted w.0.1", "drainer", "drained w.0.1 foreign", "rebooter", "rebooted w.0.1")), "restore w.0.1 foreign"},
		"the reboot failed":                 {cordoned(node("a", "locker", "granted w.0.1", "drainer", "drained w.0.1", "rebooter", "failed w.0.1 x")), "restore w.0.1"},
		"the reboot failed, all is undone":  {node("a", "locker", "granted w.0.1", "drainer", "restored w.0.1", "rebooter", "failed w.0.1 x"), ""},
		"the drain failed":                  {node("a", "locker", "granted w.0.1", "drainer", "failed w.0.1 x"), ""},
		"restored":                          {node("a", "locker", "granted w.0.1", "drainer", "restored w.0.1", "rebooter", "rebooted w.0.1"), ""},
		"revoked before anything was done: nothing is undone": {cordoned(node("a", "locker", "revoked w.0.1 x")), "restore w.0.1 foreign"},
		"revoked in mid-drain":                                {cordoned(node("a", "locker", "revoked w.0.1 x", "drainer", "cordoned w.0.1")), "restore w.0.1"},
		"revoked in mid-drain, the cordon is foreign":         {cordoned(node("a", "locker", "revoked w.0.1 x", "drainer", "cordoned w.0.1 foreign")), "restore w.0.1 foreign"},
		"revoked, but the reboot may have begun":              {cordoned(node("a", "locker", "revoked w.0.1 x", "drainer", "drained w.0.1", "rebooter", "rebooting w.0.1 b "+long)), ""},
		"a cordon is left of a cycle that is over":            {cordoned(node("a", "locker", "released w.0.1 "+long+" outcome=revoked", "drainer", "cordoned w.0.1")), "restore w.0.1"},
		"a cordon is left and the locker's status is lost":    {cordoned(node("a", "drainer", "drained w.0.1")), "restore w.0.1"},
		"a cordon is left and its reboot has not ended":       {cordoned(node("a", "drainer", "drained w.0.1", "rebooter", "rebooting w.0.1 b "+long)), ""},
		"a cordon is left under a new grant":                  {cordoned(node("a", "locker", "granted w.0.2", "drainer", "cordoned w.0.1")), "restore w.0.1"},
		"a reboot of an earlier cycle has not ended":          {node("a", "locker", "granted w.0.2", "rebooter", "rebooting w.0.1 b "+long), ""},
		"garbage": {node("a", "locker", "granted w.0.1", "rebooter", "💥"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			step := DrainerDecide(c.node)
			got := ""
			if step.Kind != Nothing {
				got = fmt.Sprintf("%s %s", step.Kind, step.Grant)
			}
			if step.Foreign {
				got += " foreign"
			}
			if step.Backed {
				got += " backed"
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestHowADrainStands(t *testing.T) {
	policy := DrainPolicy{Timeout: time.Minute}
	for name, c := range map[string]struct {
		view DrainView
		want DrainOutcome
		why  string
	}{
		"nothing is left":                     {DrainView{Policy: policy}, DrainDone, ""},
		"nothing is left when time is up":     {DrainView{Policy: policy, Elapsed: time.Hour}, DrainDone, ""},
		"something is left":                   {DrainView{Policy: policy, Left: []string{"a/b"}}, DrainGoesOn, ""},
		"C20 one pod is left when time is up": {DrainView{Policy: policy, Left: []string{"a/b"}, Elapsed: time.Minute}, DrainFailed, "1 pods are left after 1m0s: a/b"},
		"many are left":                       {DrainView{Policy: policy, Left: []string{"a", "b", "c", "d", "e"}, Elapsed: time.Minute}, DrainFailed, "5 pods are left after 1m0s: a, b, c and 2 more"},
		"it can never succeed":                {DrainView{Policy: policy, Refused: "no", Left: []string{"a"}}, DrainFailed, "no"},
		"nothing is to be evicted":            {DrainView{Policy: DrainPolicy{Skip: true}, Left: []string{"a"}}, DrainDone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, why := c.view.Decide(); got != c.want || why != c.why {
				t.Errorf("got %s %q", got, why)
			}
		})
	}
}
