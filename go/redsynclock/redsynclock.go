// Package redsynclock has the mutexes of [redsync] on Palisade locks. A program changes its import and the line that makes the
// Redsync:
//
//	import redsync "palisade/locks/redsynclock"
//
//	rs := redsync.New(client) // a *locks.Client, in place of pools
//	mutex := rs.NewMutex("orders:42", redsync.WithExpiry(30*time.Second))
//
// As there, a lease ends after its expiry unless [Mutex.Extend] is called; [WithAutoExtend] changes that. Unlike there, a mutex
// waits in turn, and has a fencing token.
//
// Programs of redsync and of this package share no lock: docs/migrate.md has the way from one to the other.
//
// [redsync]: https://pkg.go.dev/github.com/go-redsync/redsync/v4
package redsynclock

import (
	"context"
	"errors"
	"sync"
	"time"

	"palisade/locks"
)

// The defaults of redsync.
const (
	expiryDefault = 8 * time.Second
	triesDefault  = 32
	// The mean of redsync's random delay.
	delayDefault = 150 * time.Millisecond
)

var (
	// ErrFailed: the lock was not acquired in time. The error is also [locks.ErrNotAcquired].
	ErrFailed = errors.New("redsynclock: failed to acquire lock")
	// ErrExtendFailed: the lock was not extended.
	ErrExtendFailed = errors.New("redsynclock: failed to extend lock")
	// ErrLockAlreadyExpired: the lock was lost before its release.
	ErrLockAlreadyExpired = errors.New("redsynclock: failed to unlock, lock was already expired")
)

// Redsync makes mutexes.
type Redsync struct{ client *locks.Client }

// New returns a Redsync with the locks of a client, which has one node, or several through a `palisade agent`.
func New(client *locks.Client) *Redsync { return &Redsync{client} }

// An Option configures a mutex.
type Option interface{ Apply(*Mutex) }

// OptionFunc is a function that configures a mutex.
type OptionFunc func(*Mutex)

// Apply calls f.
func (f OptionFunc) Apply(m *Mutex) { f(m) }

// WithExpiry sets the length of the lease, 8 s by default.
func WithExpiry(expiry time.Duration) Option { return OptionFunc(func(m *Mutex) { m.expiry = expiry }) }

// WithTries sets the number of tries, 32 by default. A mutex waits in turn for as long as they would have taken with their delays.
func WithTries(tries int) Option { return OptionFunc(func(m *Mutex) { m.tries = tries }) }

// WithRetryDelay sets the delay between two tries, 150 ms by default.
func WithRetryDelay(delay time.Duration) Option {
	return OptionFunc(func(m *Mutex) { m.delay = delay })
}

// WithAutoExtend extends the lease in the background, as Palisade's locks do by default.
func WithAutoExtend() Option { return OptionFunc(func(m *Mutex) { m.autoExtend = true }) }

// A Mutex is a lock that one goroutine holds at a time, over all programs.
type Mutex struct {
	client     *locks.Client
	name       string
	expiry     time.Duration
	tries      int
	delay      time.Duration
	autoExtend bool

	mu   sync.Mutex
	lock *locks.Lock
}

// NewMutex returns the mutex of a name.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	m := &Mutex{client: r.client, name: name, expiry: expiryDefault, tries: triesDefault, delay: delayDefault}
	for _, option := range options {
		option.Apply(m)
	}
	return m
}

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.name }

// Value returns the random owner of the acquisition; empty while it is not held.
func (m *Mutex) Value() string {
	if lock := m.Held(); lock != nil {
		return lock.Owner()
	}
	return ""
}

// Until returns until when the lock may be relied on.
func (m *Mutex) Until() time.Time {
	if lock := m.Held(); lock != nil {
		return time.Now().Add(lock.ValidFor())
	}
	return time.Time{}
}

// Token returns the fencing token, for the resource; 0 while it is not held.
func (m *Mutex) Token() int64 {
	if lock := m.Held(); lock != nil {
		return lock.Token()
	}
	return 0
}

// Held returns the lock below; nil while it is not held. Its context ends when the lock is lost.
func (m *Mutex) Held() *locks.Lock {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lock
}

// Lock is LockContext without a context.
func (m *Mutex) Lock() error { return m.LockContext(context.Background()) }

// TryLock is TryLockContext without a context.
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// LockContext acquires the lock, waiting in turn. It is [ErrFailed] if that takes too long.
func (m *Mutex) LockContext(ctx context.Context) error {
	return m.take(ctx, time.Duration(max(0, m.tries-1))*m.delay)
}

// TryLockContext acquires the lock if it is free now. It is [ErrFailed] otherwise.
func (m *Mutex) TryLockContext(ctx context.Context) error { return m.take(ctx, 0) }

func (m *Mutex) take(ctx context.Context, wait time.Duration) error {
	lock, err := m.client.Lock(ctx, m.name, locks.TTL(m.expiry), locks.Wait(wait), locks.AutoExtend(m.autoExtend))
	if errors.Is(err, locks.ErrNotAcquired) {
		return errors.Join(ErrFailed, err)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lock = lock
	return nil
}

// Unlock is UnlockContext without a context.
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }

// UnlockContext releases the lock, and returns whether it was held until then. The error is [ErrLockAlreadyExpired] if the lock
// was lost before.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	m.mu.Lock()
	lock := m.lock
	m.lock = nil
	m.mu.Unlock()
	if lock == nil {
		return false, ErrLockAlreadyExpired
	}
	err := lock.Unlock(ctx)
	if errors.Is(err, locks.ErrLost) {
		return false, errors.Join(ErrLockAlreadyExpired, err)
	}
	return err == nil, err
}

// Extend is ExtendContext without a context.
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext extends the lease to the expiry from now. The error is [ErrExtendFailed] if that failed, or the lock was lost.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	lock := m.Held()
	if lock == nil {
		return false, ErrExtendFailed
	}
	if err := lock.Extend(ctx, m.expiry); err != nil {
		return false, errors.Join(ErrExtendFailed, err)
	}
	return true, nil
}

// Valid is ValidContext without a context.
func (m *Mutex) Valid() (bool, error) { return m.ValidContext(context.Background()) }

// ValidContext returns whether the lock may be relied on now. It asks no server.
func (m *Mutex) ValidContext(context.Context) (bool, error) {
	lock := m.Held()
	return lock != nil && lock.IsValid(), nil
}
