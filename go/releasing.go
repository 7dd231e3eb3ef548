package locks

import (
	"errors"
	"time"
)

// The time for the answer to a wait that was given up; a lock that it grants is released.
const lateAnswer = time.Second

// The pauses between attempts to release a lock.
const (
	releaseAgainLeast = 20 * time.Millisecond
	releaseAgainMost  = time.Second
)

// An acquisition of a lock, as the server knows it. The owner is new for each one, so that no one mistakes another's grant for its
// own.
type acquisition struct {
	key   string
	owner string
	ttl   time.Duration
}

// A request that was sent, and whose answer nobody awaits any longer.
type underWay struct {
	// connection is nil for the pool's.
	connection *connection
	came       <-chan answer
}

// release releases holds down to below level. It returns nil, ErrLost if the lock was not held, ErrUnknown if no answer
// tells.
func (c *connections) release(acquired acquisition, level int) error {
	reply, broke, err := c.ask(c.answerWithin, "LOCK.RELEASE", acquired.key, acquired.owner, "LEVEL", level)
	var refused *ServerError
	switch {
	case err == nil && reply != nil:
		return nil
	case err == nil && broke:
		// After a repetition, Null may mean that the first request released it.
		return &failure{kind: ErrUnknown, message: ErrUnknown.Error() + ": the connection broke at the release"}
	case err == nil, errors.As(err, &refused) && refused.Code == "WRONGTYPE":
		return &LostError{Reason: TakenAway}
	}
	return &failure{kind: ErrUnknown, message: ErrUnknown.Error() + ": " + err.Error(), cause: err}
}

// giveBack releases an acquisition in the background, whatever its state; it tries until its lease has ended.
func (c *connections) giveBack(acquired acquisition, sent *underWay) {
	c.inBackground(func() {
		c.releaseAtLast(acquired)
		// A request may reach the server only now, and be granted: only its answer tells.
		if sent != nil && !c.comesFree(sent) {
			c.releaseAtLast(acquired)
		}
	})
}

// comesFree awaits the late answer of a request. It returns true if the answer is Null: nothing was granted.
func (c *connections) comesFree(sent *underWay) bool {
	// The pool's requests end by themselves.
	late := (<-chan time.Time)(nil)
	if sent.connection != nil {
		timer := time.NewTimer(lateAnswer)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case one := <-sent.came:
		if sent.connection != nil {
			c.giveIdle(sent.connection)
		}
		return one.err == nil && one.reply == nil
	case <-late:
		c.destroy(sent.connection)
		return false
	}
}

func (c *connections) releaseAtLast(acquired acquisition) {
	until := now().plus(acquired.ttl)
	for pause := releaseAgainLeast; ; pause = min(2*pause, releaseAgainMost) {
		err := c.release(acquired, 1)
		// A lock that cannot be released ends with its lease.
		if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrMisconfigured) || now() >= until {
			return
		}
		select {
		case <-time.After(pause):
		case <-c.closing.Done():
			return
		}
	}
}
