package locktest

import (
	"slices"
	"sync"
	"time"
)

// The first token, which has the length of a server's.
const firstToken = 1_700_000_000_000_000

// A request is what an acquisition asks for.
type request struct {
	owner, note string
	ttl         time.Duration
	isShared    bool
	// limit is the number of permits, and 0 of other locks.
	limit int
}

// A grant is an owner's hold on a lock.
type grant struct {
	request
	token  int64
	number int
	holds  int
	// sequence is the number of the last proclamation of a leader.
	sequence int64
	since    time.Time
	until    time.Time
}

// A waiter stands in the queue of a lock.
type waiter struct {
	request
	granted chan *grant
}

type lock struct {
	grants []*grant
	queue  []*waiter
}

// A book has all locks.
type book struct {
	mu        sync.Mutex
	locks     map[string]*lock
	lastToken int64
}

// of returns the lock, without grants whose lease is over. The caller has the mutex.
func (b *book) of(key string) *lock {
	l := b.locks[key]
	if l == nil {
		l = &lock{}
		b.locks[key] = l
	}
	l.grants = slices.DeleteFunc(l.grants, func(g *grant) bool { return !time.Now().Before(g.until) })
	return l
}

// grantOf returns what the owner has of the lock; nil for nothing.
func (l *lock) grantOf(owner string) *grant {
	for _, g := range l.grants {
		if g.owner == owner {
			return g
		}
	}
	return nil
}

// number returns the number that the request would have, and whether the request is compatible with all grants.
func (l *lock) number(r request) (int, bool) {
	number := min(r.limit, 1)
	for _, g := range l.grants {
		arePermits := r.limit > 0 && g.limit > 0
		if !arePermits && !(r.isShared && g.isShared) || arePermits && g.number > r.limit {
			return 0, false
		}
	}
	for r.limit > 0 && slices.ContainsFunc(l.grants, func(g *grant) bool { return g.number == number }) {
		number++
	}
	smallest := r.limit
	for _, g := range l.grants {
		smallest = min(smallest, g.limit)
	}
	return number, number <= smallest
}

// acquire grants the request if nothing stands in its way; nil otherwise. An owner that has the lock gets its grant again.
func (b *book) acquire(key string, r request) *grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.acquireLocked(key, r)
}

func (b *book) acquireLocked(key string, r request) *grant {
	l := b.of(key)
	if again := l.grantOf(r.owner); again != nil {
		b.extendLocked(key, again, r.ttl)
		return again
	}
	if len(l.queue) > 0 {
		return nil
	}
	return b.grant(key, l, r)
}

// grant grants the request if it is compatible with all grants.
func (b *book) grant(key string, l *lock, r request) *grant {
	number, fits := l.number(r)
	if !fits {
		return nil
	}
	b.lastToken++
	g := &grant{request: r, token: b.lastToken, number: number, holds: 1, since: time.Now()}
	l.grants = append(l.grants, g)
	b.extendLocked(key, g, r.ttl)
	return g
}

// wait grants the request in turn, within this time; nil otherwise.
func (b *book) wait(key string, r request, most time.Duration) *grant {
	b.mu.Lock()
	g := b.acquireLocked(key, r)
	if g != nil {
		b.mu.Unlock()
		return g
	}
	w := &waiter{request: r, granted: make(chan *grant, 1)}
	l := b.of(key)
	l.queue = append(l.queue, w)
	b.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case g := <-w.granted:
		return g
	case <-timer.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(key, w.owner)
	select {
	case g := <-w.granted:
		return g
	default:
		return nil
	}
}

// leave takes an owner's requests out of the queue.
func (b *book) leave(key, owner string) {
	l := b.of(key)
	l.queue = slices.DeleteFunc(l.queue, func(w *waiter) bool {
		if w.owner == owner {
			w.granted <- nil
		}
		return w.owner == owner
	})
	b.serveQueue(key)
}

// serveQueue grants to the first waiters, in turn.
func (b *book) serveQueue(key string) {
	l := b.of(key)
	for len(l.queue) > 0 {
		g := b.grant(key, l, l.queue[0].request)
		if g == nil {
			return
		}
		l.queue[0].granted <- g
		l.queue = l.queue[1:]
	}
}

// extendLocked gives a grant a lease from now, which is not shorter than the one it has.
func (b *book) extendLocked(key string, g *grant, ttl time.Duration) {
	if until := time.Now().Add(ttl); until.After(g.until) {
		g.until = until
		time.AfterFunc(ttl, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.serveQueue(key)
		})
	}
}

// with calls change with the owner's grant, and returns its answer; false if there is none.
func (b *book) with(key, owner string, change func(l *lock, g *grant) (int64, bool)) (int64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.of(key)
	if g := l.grantOf(owner); g != nil {
		return change(l, g)
	}
	return 0, false
}

func (b *book) extend(key, owner string, ttl time.Duration) (int64, bool) {
	return b.with(key, owner, func(_ *lock, g *grant) (int64, bool) {
		b.extendLocked(key, g, ttl)
		return g.token, true
	})
}

func (b *book) reenter(key, owner string, level int) (int64, bool) {
	return b.with(key, owner, func(_ *lock, g *grant) (int64, bool) {
		g.holds = max(g.holds, level)
		return int64(g.holds), true
	})
}

// proclaim proclaims a leader's value, unless a later one is there already, and returns the number of the last.
func (b *book) proclaim(key, owner, note string, sequence int64) (int64, bool) {
	return b.with(key, owner, func(_ *lock, g *grant) (int64, bool) {
		if sequence > g.sequence {
			g.note, g.sequence = note, sequence
		}
		return g.sequence, true
	})
}

func (b *book) convert(key, owner string, toShared bool) (int64, bool) {
	return b.with(key, owner, func(l *lock, g *grant) (int64, bool) {
		if g.limit > 0 || !toShared && len(l.grants) > 1 {
			return 0, false
		}
		if g.isShared && !toShared {
			b.lastToken++
			g.token = b.lastToken
		}
		g.isShared = toShared
		b.serveQueue(key)
		return g.token, true
	})
}

// release gives holds back down to below the level, and takes the owner's requests out of the queue.
func (b *book) release(key, owner string, level int) (int64, bool) {
	left, found := b.with(key, owner, func(l *lock, g *grant) (int64, bool) {
		if g.holds = min(g.holds, level-1); g.holds == 0 {
			l.grants = slices.DeleteFunc(l.grants, func(other *grant) bool { return other == g })
		}
		return int64(g.holds), true
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(key, owner)
	return left, found
}

func (b *book) takeAway(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(key).grants = nil
	b.serveQueue(key)
}

func (b *book) waiting(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.of(key).queue)
}

func (b *book) isHeld(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.of(key).grants) > 0
}

// oldest returns the grant that has been held longest; nil for a free lock.
func (b *book) oldest(key string) *grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	if grants := b.of(key).grants; len(grants) > 0 {
		copied := *grants[0]
		return &copied
	}
	return nil
}
