// Package promlock counts locks for Prometheus, under the names of the crate for Rust (docs/telemetry.md):
//
//	client, err := locks.Open(address, locks.Listen(promlock.New(prometheus.DefaultRegisterer)), locks.Class("orders"))
package promlock

import (
	"context"
	"errors"
	"strings"
	"time"

	"palisade/locks"

	"github.com/prometheus/client_golang/prometheus"
)

// From a free lock on a near node to a queue of minutes, in seconds.
var buckets = []float64{0.001, 0.005, 0.025, 0.1, 0.5, 2, 10, 60, 300}

// Metrics are a [locks.Listener]. One serves every Client of a program.
type Metrics struct {
	acquisitions, extensions, losses *prometheus.CounterVec
	held                             *prometheus.GaugeVec
	wait, hold                       *prometheus.HistogramVec
}

// New returns metrics, which it registers. It panics if the registry has them already.
func New(registry prometheus.Registerer) *Metrics {
	kind := []string{"class", "mode"}
	ended := []string{"class", "mode", "outcome"}
	counter := func(name, help string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "palisade_client_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, labels []string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: "palisade_client_" + name, Help: help, Buckets: buckets}, labels)
	}
	m := &Metrics{
		acquisitions: counter("acquisitions_total", "Acquisitions, by how they ended.", ended),
		extensions:   counter("extensions_total", "Extensions of held locks.", ended),
		losses:       counter("losses_total", "Locks that were lost.", []string{"class", "mode", "reason"}),
		held:         prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "palisade_client_held", Help: "Locks held now."}, kind),
		wait:         histogram("wait_seconds", "From the call to its end.", ended),
		hold:         histogram("hold_seconds", "From the grant to the release or the loss.", kind),
	}
	registry.MustRegister(m.acquisitions, m.extensions, m.losses, m.held, m.wait, m.hold)
	return m
}

// Acquired counts a granted lock.
func (m *Metrics) Acquired(kind locks.Kind, waited time.Duration) {
	m.ended(kind, waited, "granted")
	m.held.WithLabelValues(kind.Class, kind.Mode).Inc()
}

// Failed counts an acquisition by why it failed.
func (m *Metrics) Failed(kind locks.Kind, waited time.Duration, err error) {
	m.ended(kind, waited, outcome(err))
}

func (m *Metrics) ended(kind locks.Kind, waited time.Duration, outcome string) {
	m.acquisitions.WithLabelValues(kind.Class, kind.Mode, outcome).Inc()
	m.wait.WithLabelValues(kind.Class, kind.Mode, outcome).Observe(waited.Seconds())
}

// Extended counts an extension.
func (m *Metrics) Extended(kind locks.Kind, succeeded bool) {
	word := "failed"
	if succeeded {
		word = "extended"
	}
	m.extensions.WithLabelValues(kind.Class, kind.Mode, word).Inc()
}

// Released counts how long a lock was held.
func (m *Metrics) Released(kind locks.Kind, heldFor time.Duration) {
	m.held.WithLabelValues(kind.Class, kind.Mode).Dec()
	m.hold.WithLabelValues(kind.Class, kind.Mode).Observe(heldFor.Seconds())
}

// Lost counts a loss, and how long the lock was held.
func (m *Metrics) Lost(kind locks.Kind, heldFor time.Duration, reason locks.LossReason) {
	m.Released(kind, heldFor)
	m.losses.WithLabelValues(kind.Class, kind.Mode, strings.ReplaceAll(string(reason), "-", "_")).Inc()
}

func outcome(err error) string {
	var refused *locks.NotAcquiredError
	switch {
	case errors.As(err, &refused) && refused.Reason == locks.Held:
		return "contended"
	case errors.As(err, &refused) && refused.Reason == locks.TimedOut:
		return "timed_out"
	case errors.As(err, &refused):
		return "expired"
	case errors.Is(err, locks.ErrGuarded):
		return "guarded"
	case errors.Is(err, locks.ErrNoQuorum), errors.Is(err, locks.ErrUnavailable):
		return "no_quorum"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, locks.ErrClosed):
		return "cancelled"
	}
	return "refused"
}
