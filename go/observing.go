package locks

import (
	"context"
	"fmt"
	"iter"
	"time"
)

const (
	// The server answers an observer after this time even without a change. A connection without that answer is closed.
	observeFor   = 3 * time.Second
	observeUntil = 6 * time.Second
	observeAgain = 300 * time.Millisecond
)

// leading is the state of an election's lock: its grant, and the proclamation.
type leading struct {
	token    int64
	sequence int64
	leader   *Leader
}

// Leader returns the leader that the server reports now, or nil if nobody leads.
//
// The leader may have gone by the time this returns: send it nothing that must not be done twice, unless with its term. After
// [ErrGuarded] the server may have forgotten who leads.
func (e *Election) Leader(ctx context.Context) (*Leader, error) {
	type told struct {
		leader *Leader
		err    error
	}
	came := make(chan told, 1)
	e.client.connections.inBackground(func() {
		leader, err := e.leaderNow()
		came <- told{leader, of(e.name, err)}
	})
	select {
	case one := <-came:
		return one.leader, one.err
	case <-ctx.Done():
		return nil, of(e.name, givenUp(ctx, nil))
	}
}

func (e *Election) leaderNow() (*Leader, error) {
	connections := e.client.connections
	reply, _, err := connections.ask(connections.answerWithin, "LOCK.INFO", e.name)
	if err != nil {
		return nil, err
	}
	state, err := toLeading(reply)
	if err == nil {
		err = e.checkMemory(state)
	}
	return state.leader, err
}

// Observe reports each change of the leader from now on, beginning with the present state; nil if nobody leads.
//
// Terms grow, and within one term the sequence. While the server is unreachable or guarded, nothing is reported, and the last
// report is the best knowledge there is. The iteration holds one connection, and does not poll. It ends with ctx, with the
// Client, and after an error, which somebody has to act on.
func (e *Election) Observe(ctx context.Context) iter.Seq2[*Leader, error] {
	return func(yield func(*Leader, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(e.client.connections.closing, func() { cancel(ErrClosed) })()
		o := &observation{election: e, ctx: ctx}
		defer o.forget()
		for ctx.Err() == nil {
			leader, isNews, err := o.next()
			switch {
			case ctx.Err() != nil:
				return
			case err == nil && isNews && !yield(leader, nil):
				return
			case err != nil && isLasting(err):
				yield(nil, of(e.name, err))
				return
			case err != nil:
				o.forget()
				o.pause()
			}
		}
	}
}

// An observation is one iteration over the changes of the leader.
type observation struct {
	election   *Election
	ctx        context.Context
	connection *connection
	// known is the state that was seen last, and nil before.
	known *leading
	// told is what was reported last.
	told    *Leader
	hasTold bool
}

// next returns the leader once the server reports something, and whether the leader has changed.
func (o *observation) next() (leader *Leader, isNews bool, err error) {
	state, err := o.look()
	if err != nil || state == nil {
		return nil, false, err
	}
	if err := o.election.checkMemory(*state); err != nil {
		return nil, false, err
	}
	o.known = state
	if !o.isNews(state.leader) {
		return nil, false, nil
	}
	o.told, o.hasTold = state.leader, true
	return state.leader, true, nil
}

// look returns the state if it differs from the known one; nil if nothing happened.
func (o *observation) look() (*leading, error) {
	connections := o.election.client.connections
	if o.connection == nil {
		opened, err := connections.forWait(o.ctx)
		if err != nil {
			return nil, err
		}
		o.connection = opened
	}
	// Without a known state, LOCK.INFO reports the present one; LOCK.WATCH would not report a free lock.
	words := []any{"LOCK.INFO", o.election.name}
	if o.known != nil {
		words = []any{"LOCK.WATCH", o.election.name, milliseconds(observeFor)}
		if o.known.token > 0 {
			words = append(words, "TOKEN", o.known.token, "SEQ", o.known.sequence)
		}
	}
	select {
	case one := <-o.connection.begin(observeUntil, words):
		// Null means for LOCK.INFO that the lock is free, for LOCK.WATCH that nothing happened.
		if one.err != nil || one.reply == nil && o.known != nil {
			return nil, one.err
		}
		state, err := toLeading(one.reply)
		return &state, err
	case <-o.ctx.Done():
		return nil, o.ctx.Err()
	}
}

func (o *observation) isNews(leader *Leader) bool {
	if leader == nil || o.told == nil {
		return !o.hasTold || leader != o.told
	}
	return leader.Term > o.told.Term || leader.Term == o.told.Term && leader.Sequence > o.told.Sequence
}

func (o *observation) pause() {
	select {
	case <-time.After(observeAgain):
	case <-o.ctx.Done():
	}
}

// forget closes the connection: the next one begins with the present state.
func (o *observation) forget() {
	o.known = nil
	if o.connection != nil {
		o.election.client.connections.destroy(o.connection)
		o.connection = nil
	}
}

// checkMemory returns ErrGuarded if the server has forgotten its grants, and so cannot report that nobody leads.
func (e *Election) checkMemory(state leading) error {
	if state.token > 0 {
		return nil
	}
	connections := e.client.connections
	reply, _, err := connections.ask(connections.answerWithin, "LOCK.NODE")
	if err != nil {
		return err
	}
	fields, err := toFields(reply)
	if err != nil {
		return err
	}
	if guard, has := fields["guard_ms"].(int64); has && guard > 0 {
		message := fmt.Sprintf("GUARDED %d the server may have forgotten who leads", guard)
		return &ServerError{Code: "GUARDED", Message: message, RetryAfter: time.Duration(guard) * time.Millisecond, kind: ErrGuarded}
	}
	return nil
}

// toLeading reads the answer to LOCK.INFO or LOCK.WATCH.
func toLeading(reply any) (leading, error) {
	fields, err := toFields(reply)
	if err != nil || len(fields) == 0 {
		return leading{}, err
	}
	token, err := toInteger(fields["token"])
	if err != nil || token == 0 {
		return leading{}, err
	}
	sequence, err := toInteger(fields["seq"])
	// A holder without a proclamation is about to proclaim, or is no candidate.
	if err != nil || sequence == 0 {
		return leading{token: token}, err
	}
	note, isText := fields["note"].(string)
	if !isText {
		return leading{}, unexpected(fields["note"], "a note")
	}
	return leading{token: token, sequence: sequence, leader: readNote(note, sequence)}, nil
}
