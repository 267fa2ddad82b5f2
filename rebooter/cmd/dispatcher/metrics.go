package main

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	rebootSeconds prometheus.Histogram
	jobs          *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		rebootSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ganglion_dispatcher_reboot_seconds",
			Help:    "How long the reboots that succeeded took, from the intent to Ready with a new boot id.",
			Buckets: []float64{5, 15, 30, 60, 90, 120, 180, 300, 600, 900, 1800, 3600},
		}),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ganglion_dispatcher_jobs_total",
			Help: "Jobs by what came of them: created, succeeded, failed.",
		}, []string{"result"}),
	}
	for _, result := range []string{"created", "succeeded", "failed"} {
		m.jobs.WithLabelValues(result)
	}
	r.MustRegister(m.rebootSeconds, m.jobs)
	return m
}
