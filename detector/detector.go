package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"

	"ganglion.dev/shared/connect"
	"ganglion.dev/shared/daemon"
	"ganglion.dev/shared/need"
)

// Times that a user has no reason to change.
const (
	// writeEvery bounds the writes of a sentinel that flaps.
	writeEvery = time.Second
	// beatEvery is how often the idle loop says that it is alive.
	beatEvery = time.Minute
)

type detector struct {
	options
	log     *zap.Logger
	health  *daemon.Health
	node    *nodeClient
	bootID  string
	watch   *watcher
	metrics *metrics

	seen    need.Seen
	have    need.Key // the key as last read or written
	known   bool     // whether have is to be relied on
	allowed bool     // whether all rights were there

	trouble   string    // what was last told of what cannot be read
	notBefore time.Time // when the API server may be asked again
	untold    []event   // that the API server has not got yet
	lastWrite time.Time
	backoff   wait.Backoff
}

type metrics struct {
	required prometheus.Gauge
	healthy  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer, node, name string) *metrics {
	m := &metrics{
		required: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ganglion_detector_reboot_required", Help: "1 while a sentinel says that the node needs a reboot.",
			ConstLabels: prometheus.Labels{"node": node, "detector": name},
		}),
		healthy: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ganglion_detector_watch_healthy", Help: "1 while all sentinels can be read and watched.",
		}),
	}
	r.MustRegister(m.required, m.healthy)
	return m
}

// newBackoff is for requests that fail: from 1 s up to a minute.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 8, Cap: time.Minute}
}

// run looks at the sentinels whenever something changed, and brings the key into
// line with them whenever that is due.
func (d *detector) run(ctx context.Context) {
	recheck, period, beat := time.NewTicker(d.recheck), time.NewTicker(d.period), time.NewTicker(beatEvery)
	defer recheck.Stop()
	defer period.Stop()
	defer beat.Stop()
	due := time.NewTimer(0) // fires when the key is to be brought into line
	defer due.Stop()
	d.look()
	for {
		d.health.Beat("watch", 3*beatEvery)
		select {
		case <-ctx.Done():
			return
		case event := <-d.watch.events:
			if !d.watch.matters(event) {
				continue
			}
			d.look()
		case err := <-d.watch.errors:
			d.log.Warn("events were lost, looking again", zap.Error(err))
			d.look()
		case <-recheck.C:
			d.look()
		case <-period.C:
			d.known = false // somebody may have changed it
		case <-beat.C:
			continue
		case <-due.C:
			d.look()
		}
		if again := d.keep(ctx); again > 0 {
			due.Reset(again)
		}
	}
}

// look finds out what the sentinels say.
func (d *detector) look() {
	watchErr := d.watch.arrange()
	verdicts := make([]need.Verdict, 0, len(d.sentinels.Values))
	errs := []error{watchErr}
	var reasons []string
	for _, sentinel := range d.sentinels.Values {
		verdict, err := probe(sentinel)
		if verdict == need.Required {
			reasons = append(reasons, reason(sentinel))
		}
		if verdict == need.NotRequired && watchErr != nil {
			verdict = need.Unknown // it may come and go unseen
		}
		verdicts = append(verdicts, verdict)
		errs = append(errs, err)
	}
	d.seen = need.Seen{Verdict: need.Join(verdicts...), BootID: d.bootID, Reason: strings.Join(slices.Compact(reasons), " ")}
	switch d.seen.Verdict {
	case need.Required:
		d.metrics.required.Set(1)
	case need.NotRequired:
		d.metrics.required.Set(0)
	}
	d.tellTrouble(errors.Join(errs...))
}

// tellTrouble says what cannot be read, once until that changes.
func (d *detector) tellTrouble(err error) {
	d.health.SetReady("sentinels", err)
	text := ""
	if err != nil {
		text = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	healthy := 1.0
	if err != nil {
		healthy = 0
	}
	d.metrics.healthy.Set(healthy)
	if text == d.trouble {
		return
	}
	d.trouble = text
	if err == nil {
		d.log.Info("all sentinels can be read again")
		return
	}
	d.log.Warn("cannot tell whether a reboot is required; the key stays as it is", zap.Error(err))
	d.tell(warning, "SentinelUnreadable", text)
}

// keep brings the key into line. It returns when to try again, 0 where there is
// nothing left to do.
func (d *detector) keep(ctx context.Context) time.Duration {
	if wait := time.Until(d.notBefore); wait > 0 {
		return wait
	}
	if err := d.bringIntoLine(ctx); err != nil {
		if ctx.Err() != nil {
			return 0
		}
		d.known = false // a write that got no answer may have taken effect
		d.log.Warn("will try again", zap.Error(err))
		d.health.SetReady("node", err)
		wait := max(d.backoff.Step(), writeEvery)
		d.notBefore = time.Now().Add(wait)
		return wait
	}
	d.backoff = newBackoff()
	d.health.SetReady("node", nil)
	if _, change := need.Decide(d.seen, d.have, time.Now()); change {
		return max(time.Until(d.lastWrite.Add(writeEvery)), time.Millisecond)
	}
	return 0
}

func (d *detector) bringIntoLine(ctx context.Context) error {
	if !d.allowed {
		if err := connect.MissingRights(ctx, d.node.rest, rights); err != nil {
			return err
		}
		d.allowed = true
	}
	if !d.known {
		have, err := d.node.read(ctx)
		if err != nil {
			return err
		}
		d.have, d.known = have, true
	}
	want, change := need.Decide(d.seen, d.have, time.Now())
	if !change || time.Since(d.lastWrite) < writeEvery {
		return d.flush(ctx)
	}
	d.lastWrite = time.Now()
	if err := d.node.write(ctx, want); err != nil {
		return err
	}
	had := d.have
	d.have = want
	d.log.Info("wrote", zap.String("key", d.node.key), zap.Bool("required", want.There), zap.String("value", want.Value))
	switch {
	case want.There && !had.There:
		d.tell(normal, "RebootRequired", fmt.Sprintf("%s: %s", d.node.key, d.seen.Reason))
	case !want.There:
		d.tell(normal, "RebootNoLongerRequired", d.node.key+": no sentinel is there any more")
	}
	return d.flush(ctx)
}

// tell keeps an Event for the API server. While it does not answer, the last one of
// each reason is kept.
func (d *detector) tell(kind, reason, message string) {
	d.untold = slices.DeleteFunc(d.untold, func(e event) bool { return e.Reason == reason })
	d.untold = append(d.untold, d.node.newEvent(time.Now(), kind, reason, message))
}

// flush records the Events that the API server has not got yet.
func (d *detector) flush(ctx context.Context) error {
	for len(d.untold) > 0 {
		if err := d.node.record(ctx, d.untold[0]); err != nil {
			return err
		}
		d.untold = d.untold[1:]
	}
	return nil
}
