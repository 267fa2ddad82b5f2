package main

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	drainSeconds prometheus.Histogram
	evictions    *prometheus.CounterVec
	blockedPods  prometheus.Gauge

	mu    sync.Mutex
	count map[string]int // blocked pods by node
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		count: map[string]int{},
		drainSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ganglion_drainer_drain_seconds",
			Help:    "How long the drains that succeeded took, from claim to drained.",
			Buckets: []float64{0.5, 1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600},
		}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ganglion_drainer_evictions_total",
			Help: "Evictions asked for, by what came of it: evicted, gone, refused, error.",
		}, []string{"result"}),
		blockedPods: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ganglion_drainer_blocked_pods",
			Help: "Pods whose eviction is being refused now, on the nodes that this replica drains.",
		}),
	}
	for _, v := range []verdict{evicted, gone, refused, failed} {
		m.evictions.WithLabelValues(string(v))
	}
	r.MustRegister(m.drainSeconds, m.evictions, m.blockedPods)
	return m
}

// blocked sets how many pods hold up the drain of a node.
func (m *metrics) blocked(node string, pods int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.count, node)
	if pods > 0 {
		m.count[node] = pods
	}
	total := 0
	for _, n := range m.count {
		total += n
	}
	m.blockedPods.Set(float64(total))
}
