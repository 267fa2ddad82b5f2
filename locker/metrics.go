package main

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"ganglion.dev/shared/protocol"
	"ganglion.dev/shared/rules"
)

// metrics are counters of what happened, and gauges that are read off the last
// report, so that series of what is gone go with it.
type metrics struct {
	cycles       *prometheus.CounterVec
	cycleSeconds prometheus.Histogram

	mu     sync.Mutex
	view   *rules.LockerView
	report *rules.Report
}

var (
	windowOpen = prometheus.NewDesc("ganglion_locker_window_open", "1 while the window grants.", []string{"window"}, nil)
	slots      = prometheus.NewDesc("ganglion_locker_slots", "Slots of the window.", []string{"window", "state"}, nil)
	nodes      = prometheus.NewDesc("ganglion_locker_nodes", "Nodes that the window selects, by phase.", []string{"window", "phase"}, nil)
	waiting    = prometheus.NewDesc("ganglion_locker_waiting_nodes", "Nodes that need a reboot and wait, by reason.", []string{"window", "reason"}, nil)
	stalled    = prometheus.NewDesc("ganglion_locker_stalled_nodes", "Nodes that have not come back in time.", []string{"window"}, nil)
)

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		cycles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ganglion_locker_cycles_total", Help: "Cycles that ended, by outcome.",
		}, []string{"window", "outcome"}),
		cycleSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ganglion_locker_cycle_seconds",
			Help:    "How long cycles took, from the slot taken to released.",
			Buckets: []float64{5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200},
		}),
	}
	r.MustRegister(m.cycles, m.cycleSeconds, m)
	return m
}

// show makes a report the one that the gauges are read off. nil shows nothing:
// only the leader knows.
func (m *metrics) show(view *rules.LockerView, report *rules.Report) {
	m.mu.Lock()
	gone := map[string]bool{}
	if m.report != nil && report != nil {
		for window := range m.report.Windows {
			gone[window] = report.Windows[window] == nil
		}
	}
	m.view, m.report = view, report
	m.mu.Unlock()
	for window, is := range gone {
		if is {
			m.cycles.DeletePartialMatch(prometheus.Labels{"window": window})
		}
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{windowOpen, slots, nodes, waiting, stalled} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	view, report := m.view, m.report
	m.mu.Unlock()
	if report == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	phases := report.Phases(view)
	for _, w := range view.Windows {
		r := report.Windows[w.Name]
		open := 0
		if w.Grants() {
			open = 1
		}
		gauge(windowOpen, open, w.Name)
		gauge(slots, len(r.InFlight), w.Name, "held")
		gauge(slots, max(r.Cap-len(r.InFlight), 0), w.Name, "free")
		gauge(stalled, len(r.Stalled), w.Name)
		for _, phase := range protocol.Phases {
			gauge(nodes, phases[w.Name][phase], w.Name, string(phase))
		}
		reasons := map[string]int{}
		for _, n := range r.Waiting {
			reasons[n.Reason.Reason]++
		}
		for reason, n := range reasons {
			gauge(waiting, n, w.Name, reason)
		}
	}
}
