package promlock_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"
	"palisade/locks/locktest"
	"palisade/locks/promlock"

	"github.com/prometheus/client_golang/prometheus"
)

var ctx = context.Background()

// A program has locks in memory, and counts them.
type program struct {
	t        *testing.T
	server   *locktest.Server
	locks    *locks.Client
	registry *prometheus.Registry
}

func newProgram(t *testing.T) *program {
	registry, server := prometheus.NewRegistry(), locktest.New(t)
	return &program{t, server, server.Client(locks.Listen(promlock.New(registry)), locks.Class("orders")), registry}
}

// value returns what was counted with these labels, which are NAME=VALUE; of a histogram the number.
func (p *program) value(name string, labels ...string) float64 {
	families, err := p.registry.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, family := range families {
		for _, one := range family.GetMetric() {
			var has []string
			for _, label := range one.GetLabel() {
				has = append(has, label.GetName()+"="+label.GetValue())
			}
			isOne := !slices.ContainsFunc(labels, func(label string) bool { return !slices.Contains(has, label) })
			if family.GetName() == "palisade_client_"+name && slices.Contains(has, "class=orders") && isOne {
				return one.GetCounter().GetValue() + one.GetGauge().GetValue() + float64(one.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// becomes waits until this was counted.
func (p *program) becomes(number float64, name string, labels ...string) {
	p.t.Helper()
	servers.Eventually(p.t, fmt.Sprint(name, labels, " is ", number), func() bool { return p.value(name, labels...) == number })
}

func TestEachEndOfAnAcquisitionIsCountedOnce(t *testing.T) {
	p := newProgram(t)
	lock, err := p.locks.Lock(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	p.becomes(1, "held", "mode=exclusive")
	p.locks.TryLock(ctx, "k")
	p.locks.Lock(ctx, "k", locks.Wait(20*time.Millisecond))
	brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	p.locks.Lock(brief, "k")
	p.locks.Lock(ctx, "k", locks.TTL(1))
	if err := lock.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	p.becomes(0, "held", "mode=exclusive")
	p.becomes(1, "hold_seconds", "mode=exclusive")
	for _, outcome := range []string{"granted", "contended", "timed_out", "cancelled"} {
		p.becomes(1, "acquisitions_total", "mode=exclusive", "outcome="+outcome)
		p.becomes(1, "wait_seconds", "mode=exclusive", "outcome="+outcome)
	}
}

func TestALossIsCountedWithItsReasonAndExtensionsToo(t *testing.T) {
	p := newProgram(t)
	lock, err := p.locks.ReadLock(ctx, "k", locks.TTL(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	p.becomes(1, "extensions_total", "mode=shared", "outcome=extended")
	p.server.TakeAway("k")
	p.becomes(1, "losses_total", "mode=shared", "reason=taken_away")
	p.becomes(0, "held", "mode=shared")
	lock.Unlock(ctx)
	p.becomes(1, "hold_seconds", "mode=shared")
}

func TestAServerThatIsAwayIsCounted(t *testing.T) {
	p := &program{t: t, registry: prometheus.NewRegistry()}
	away, err := locks.Open("redis://127.0.0.1:1", locks.Listen(promlock.New(p.registry)), locks.Class("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	away.TryLock(ctx, "k")
	p.becomes(1, "acquisitions_total", "outcome=no_quorum")
}

func TestNamesAreThoseOfTheCrate(t *testing.T) {
	page, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newProgram(t)
	lock, _ := p.locks.Lock(ctx, "k", locks.TTL(2*time.Second))
	p.becomes(1, "extensions_total", "outcome=extended")
	p.server.TakeAway("k")
	<-lock.Context().Done()
	p.becomes(1, "losses_total")
	families, err := p.registry.Gather()
	if err != nil || len(families) != 6 {
		t.Fatal(len(families), " metrics: ", err)
	}
	for _, family := range families {
		if !strings.Contains(string(page), "| `"+family.GetName()+"` |") {
			t.Error(family.GetName(), " is not on the page")
		}
	}
}
