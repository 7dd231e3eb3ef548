// Package gocronlock makes schedulers of gocron on several hosts run each job once: one host for each run by a [Locker], or one
// host for all jobs by an [Elector].
package gocronlock

import (
	"context"
	"errors"
	"time"

	"palisade/locks"

	"github.com/go-co-op/gocron/v2"
)

// ErrElsewhere says that another host runs the job.
var ErrElsewhere = errors.New("another host runs this job")

var errCalledOff = errors.New("the scheduler waits for the lock no longer")

// A Locker locks each run of a job, by the name of the job.
type Locker struct {
	client  *locks.Client
	splay   time.Duration
	options []locks.Option
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a locker. A lock stays held for at least splay, from 100 ms to the server's lock.max-ttl, even if its job
// takes less: so hosts whose clocks differ by less than that do not run a job twice. Jobs have to be due less often than that,
// and than the ttl, 10 s by default.
func NewLocker(client *locks.Client, splay time.Duration, options ...locks.Option) *Locker {
	return &Locker{client: client, splay: splay, options: options}
}

// Lock acquires the lock of a job if it is free now; otherwise it returns [ErrElsewhere], and the job is skipped.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	r := &run{begun: make(chan struct{}), done: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		// The scheduler keeps the lock for longer than this call.
		r.ran, r.err = l.client.Once(context.WithoutCancel(ctx), job, l.splay, r.work, l.options...)
	}()
	select {
	case <-r.begun:
		return r, nil
	case <-r.ended:
		if r.err == nil {
			return nil, ErrElsewhere
		}
		return nil, r.err
	case <-ctx.Done():
		close(r.done)
		return nil, errors.Join(errCalledOff, context.Cause(ctx))
	}
}

// A run is one run of a job.
type run struct {
	begun, done, ended chan struct{}
	ran                bool
	err                error
}

func (r *run) work(context.Context, *locks.Lock) error {
	close(r.begun)
	<-r.done
	return nil
}

// Unlock gives the lock back, or leaves it to the end of the splay. It returns [locks.ErrLost] if the lock was lost before.
func (r *run) Unlock(ctx context.Context) error {
	close(r.done)
	select {
	case <-r.ended:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
