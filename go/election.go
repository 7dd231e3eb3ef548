package locks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"sync"
	"time"
)

const (
	// The longest value of a leader, in bytes: a note, less its term.
	valueBytesMax = 1002
	// The default of MaxHold for a leader: no limit.
	noMaxHold = time.Duration(math.MaxInt64)
	// The pause before a winner proclaims itself again: short beside a lease, and long enough that nodes which return are not
	// flooded.
	proclaimAgain = 100 * time.Millisecond
)

// The note of a leader, as every client of an election writes it.
var termPattern = regexp.MustCompile(`^term ([1-9][0-9]{0,15}) `)

// A Leader is the leader of an election, as an observer knows it.
type Leader struct {
	// Term is larger than that of every earlier leader.
	Term int64
	// Sequence is the number of the proclamation within its term, from 1.
	Sequence int64
	// Value is the proclaimed value, such as an address.
	Value string
}

// An Election has one leader among many candidates.
//
// The leader holds the lock of this name and has proclaimed that. Its term is larger than that of every earlier leader. A
// leader sends its term with each write to a shared resource, which refuses a term smaller than the largest it has seen: a
// paused leader does not know yet that another one leads.
type Election struct {
	client *Client
	name   string
}

// Election returns the election of this name.
func (c *Client) Election(name string) *Election { return &Election{client: c, name: name} }

// A Leadership is that of a candidate that leads, until it resigns ([Lock.Unlock]) or loses the lock.
type Leadership struct {
	*Lock
	term int64

	proclaiming sync.Mutex
	sequence    int64
}

// Term returns the term: larger than that of every earlier leader, and constant while this one leads. It is a fencing token,
// as is [Lock.Token], which can rise meanwhile: use only one of the two with a resource.
func (l *Leadership) Term() int64 { return l.term }

// Campaign waits in turn until this candidate leads, and proclaims value, at most 1002 bytes. Every observer that asks
// afterwards sees this leader or a later one. Errors and options are those of [Client.Lock]; a leader has no MaxHold by default.
func (e *Election) Campaign(ctx context.Context, value string, options ...Option) (*Leadership, error) {
	settings, err := e.client.defaults.withLock(options)
	if err == nil {
		err = checkValue(value)
	}
	if !settings.set["MaxHold"] && !e.client.defaults.set["MaxHold"] {
		settings.maxHold = noMaxHold
	}
	by := never
	if settings.waits {
		by = now().plus(settings.wait)
	}
	for {
		lock, err := e.client.take(ctx, e.name, mode{}, settings, err)
		if err != nil {
			return nil, err
		}
		leadership := &Leadership{Lock: lock, term: lock.Token()}
		err = leadership.proclaimBy(ctx, value, by)
		if err == nil {
			return leadership, nil
		}
		lock.Unlock(ctx)
		// The candidate had won, but observers may not have seen it.
		var lost *LostError
		if !errors.As(err, &lost) || lost.Reason == ClientClosed {
			return nil, err
		}
		settings.wait = max(0, by.since(now()))
	}
}

// proclaimBy proclaims the value. It tries again after an error that passes, while the lock is held and by has not come: giving
// the lock back would end the wait early, although nodes may return.
func (l *Leadership) proclaimBy(ctx context.Context, value string, by instant) error {
	for {
		err := l.Proclaim(ctx, value)
		left := by.since(now())
		if err == nil || isLasting(err) || left <= 0 {
			return err
		}
		select {
		case <-time.After(min(proclaimAgain, left)):
		case <-l.Context().Done():
			// The next proclamation returns the loss, without a request.
		case <-ctx.Done():
			// The error has the lock's name already.
			return of(l.Key(), givenUp(ctx, errors.Unwrap(err)))
		}
	}
}

func checkValue(value string) error {
	if len(value) > valueBytesMax {
		return badArgument("the value must be at most %d bytes long, not %d", valueBytesMax, len(value))
	}
	return nil
}

// Proclaim proclaims another value, at most 1002 bytes. After [ErrLost] the leadership is over.
func (l *Leadership) Proclaim(ctx context.Context, value string) error {
	if err := checkValue(value); err != nil {
		return of(l.Key(), err)
	}
	return l.do(ctx, func() error {
		l.proclaiming.Lock()
		defer l.proclaiming.Unlock()
		return l.proclaim(fmt.Sprintf("term %d %s", l.term, value))
	}, nil)
}

func (l *Leadership) proclaim(note string) error {
	h := l.held
	for {
		l.sequence++
		if err := h.state(); err != nil {
			return err
		}
		reply, _, err := h.connections.ask(h.connections.answerWithin, "LOCK.NOTE", h.key, h.owner, note, "SEQ", l.sequence)
		if err != nil {
			return err
		}
		if reply == nil {
			return h.loseNow(TakenAway)
		}
		current, err := toInteger(reply)
		if err != nil || current == l.sequence {
			return err
		}
		// A later proclamation is already there, so the server ignored this one: the next one has a larger number.
		l.sequence = max(l.sequence, current)
	}
}

// readNote returns the proclamation in a note; nil if it is another text.
func readNote(note string, sequence int64) *Leader {
	found := termPattern.FindStringSubmatch(note)
	if found == nil {
		return nil
	}
	term, err := strconv.ParseInt(found[1], 10, 64)
	if err != nil || term > integerMax {
		return nil
	}
	return &Leader{Term: term, Sequence: sequence, Value: note[len(found[0]):]}
}
