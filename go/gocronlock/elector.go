package gocronlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"palisade/locks"

	"github.com/go-co-op/gocron/v2"
)

// ErrNotLeader says that another host leads, or that nobody does yet.
var ErrNotLeader = errors.New("this host does not lead")

const (
	// A leader leads for as long as it lives.
	always = 100 * 365 * 24 * time.Hour
	// The pause after a campaign that failed.
	campaignAgain = time.Second
)

// An Elector makes one host run all jobs: the one that holds the lock of its name. The next in the queue takes over when that
// host ends, or does not extend its lease.
type Elector struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu   sync.Mutex
	lock *locks.Lock
	err  error
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an elector, which waits in the background until this host leads. Close it at the end.
func NewElector(client *locks.Client, name string, options ...locks.Option) *Elector {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Elector{cancel: cancel, ended: make(chan struct{})}
	options = append([]locks.Option{locks.MaxHold(always)}, options...)
	go func() {
		defer close(e.ended)
		for ctx.Err() == nil {
			e.lead(ctx, client, name, options)
		}
	}()
	return e
}

// lead waits until this host leads, and leads until the lock is lost or ctx ends.
func (e *Elector) lead(ctx context.Context, client *locks.Client, name string, options []locks.Option) {
	lock, err := client.Lock(ctx, name, options...)
	e.mu.Lock()
	e.lock, e.err = lock, err
	e.mu.Unlock()
	if err != nil {
		select {
		case <-time.After(campaignAgain):
		case <-ctx.Done():
		}
		return
	}
	select {
	case <-lock.Context().Done():
	case <-ctx.Done():
		lock.Unlock(context.Background())
	}
}

// IsLeader returns nil if this host leads now, by the clock; otherwise [ErrNotLeader], with what stands in its way.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lock != nil && e.lock.IsValid() {
		return nil
	}
	return errors.Join(ErrNotLeader, e.err)
}

// Close ends the campaign, and lets the next host lead.
func (e *Elector) Close() {
	e.cancel()
	<-e.ended
}
