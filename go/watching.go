package locks

import "time"

const (
	// A lock is watched once it was held for this long. Most are released before; a watch takes a connection, here and to
	// each node.
	watchAfter = 500 * time.Millisecond
	// The agent answers after this time even without a change. A connection without that answer is closed.
	watchFor   = time.Minute
	watchAgain = time.Second
	// The largest number of locks that a Client watches at once: a program with thousands leaves the agent's connections to
	// others.
	watchesMax = 32
)

// watch learns at once from a `palisade agent` that the lock was taken away, until the lock ends. It returns if the address
// is no agent's. It ignores errors: extensions show the state of the lock.
func (h *held) watch() {
	for pause := watchAfter; ; pause = watchAgain {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-h.ctx.Done():
			timer.Stop()
			return
		}
		if !h.connections.beginWatch() {
			continue
		}
		isAgent, err := h.connections.askIfAgent()
		if err == nil && isAgent {
			err = h.awaitChange()
		}
		h.connections.endWatch()
		if err == nil && !isAgent || err != nil && isLasting(err) {
			return
		}
		h.check()
	}
}

// awaitChange returns when the agent reports that no grant has the token.
func (h *held) awaitChange() error {
	connection, err := h.connections.forWait(h.ctx)
	if err != nil {
		return err
	}
	defer h.connections.destroy(connection)
	for {
		h.mu.Lock()
		token := h.token
		h.mu.Unlock()
		words := []any{"LOCK.WATCH", h.key, milliseconds(watchFor), "TOKEN", token}
		select {
		case one := <-connection.begin(watchFor+h.connections.answerWithin, words):
			if one.err != nil || one.reply != nil {
				return one.err
			}
		case <-h.ctx.Done():
			return h.ctx.Err()
		}
	}
}

func (c *connections) beginWatch() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches >= watchesMax {
		return false
	}
	c.watches++
	return true
}

func (c *connections) endWatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches--
}
