package daemon

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// metrics serves what is registered in Prometheus' text format, which every scraper
// of it reads. promhttp negotiates other formats and compresses, for 360 KB more in
// the detector, which runs on every node.
func metrics(r prometheus.Gatherer) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		families, err := r.Gather()
		if err != nil {
			http.Error(w, "gathering metrics: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
		for _, family := range families {
			if _, err := expfmt.MetricFamilyToText(w, family); err != nil {
				return // the scraper has gone
			}
		}
	}
}
