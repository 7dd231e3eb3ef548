package gocronlock

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"palisade/locks"

	"github.com/go-co-op/gocron/v2"
)

// ErrNotLeader says that another host leads, or that nobody does yet.
var ErrNotLeader = errors.New("this host does not lead")

// The pause after a campaign that failed.
const campaignAgain = time.Second

// An Elector makes one host run all jobs: the leader of the election of its name. The next in the queue takes over when that
// host ends, or does not extend its lease.
type Elector struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu         sync.Mutex
	leadership *locks.Leadership
	err        error
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an elector, which waits in the background until this host leads, and then proclaims the host's name:
// [locks.Election.Leader] returns it. Close it at the end.
func NewElector(client *locks.Client, name string, options ...locks.Option) *Elector {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Elector{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(e.ended)
		for ctx.Err() == nil {
			e.lead(ctx, client.Election(name), options)
		}
	}()
	return e
}

// lead waits until this host leads, and leads until the lock is lost or ctx ends.
func (e *Elector) lead(ctx context.Context, election *locks.Election, options []locks.Option) {
	host, _ := os.Hostname()
	leadership, err := election.Campaign(ctx, host, options...)
	e.mu.Lock()
	e.leadership, e.err = leadership, err
	e.mu.Unlock()
	if err != nil {
		select {
		case <-time.After(campaignAgain):
		case <-ctx.Done():
		}
		return
	}
	select {
	case <-leadership.Context().Done():
	case <-ctx.Done():
		leadership.Unlock(context.Background())
	}
}

// IsLeader returns nil if this host leads now, by the clock; otherwise [ErrNotLeader], with what stands in its way.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leadership != nil && e.leadership.IsValid() {
		return nil
	}
	return errors.Join(ErrNotLeader, e.err)
}

// Close ends the campaign, and lets the next host lead.
func (e *Elector) Close() {
	e.cancel()
	<-e.ended
}
