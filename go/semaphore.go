package locks

import "context"

// A Semaphore is a limited number of permits.
//
// Each permit has a number, from 1 to the limit, that no other holder has at the time: it can be a worker's id, a shard or a
// port. Its token is larger than that of every earlier permit with its number, so a resource remembers one largest token for
// each number.
type Semaphore struct {
	client *Client
	key    string
	limit  int
}

// Semaphore returns a semaphore of at most limit permits at a time, from 1 to 65 535.
func (c *Client) Semaphore(key string, limit int) *Semaphore {
	return &Semaphore{client: c, key: key, limit: limit}
}

// Acquire waits in turn until a permit is free. See [Client.Lock], and [Lock.Number].
func (s *Semaphore) Acquire(ctx context.Context, options ...Option) (*Lock, error) {
	settings, err := s.client.defaults.withLock(options)
	return s.take(ctx, settings, err)
}

// TryAcquire acquires a permit if one is free now; otherwise it returns [ErrNotAcquired].
func (s *Semaphore) TryAcquire(ctx context.Context, options ...Option) (*Lock, error) {
	settings, err := s.client.defaults.withTry(options)
	return s.take(ctx, settings, err)
}

func (s *Semaphore) take(ctx context.Context, settings settings, wrong error) (*Lock, error) {
	if err := checkLimit(s.limit); wrong == nil {
		wrong = err
	}
	return s.client.take(ctx, s.key, mode{limit: s.limit}, settings, wrong)
}
