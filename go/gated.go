package locks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const keepMost = 366 * day

// A Sender sends commands to the data: a client of go-redis, of one server or of a cluster, or a pipeline.
type Sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Fenced sends commands through a gate with the token of a lock: no server that has seen a newer holder runs them. [Lock.Fenced]
// and [Lock.FencedByLock] return it.
type Fenced struct {
	lock *Lock
	data Sender
	gate string
	more []any
	err  error
}

// A FencedError says that the resource has seen a newer holder: the lock is lost, so stop. It is [ErrFenced].
type FencedError struct {
	// Token is the token that the command carried.
	Token int64
	// Seen is the largest token that the resource has seen.
	Seen int64
}

// Error describes the refusal for people.
func (e *FencedError) Error() string {
	return fmt.Sprintf("the token %d is older than %d", e.Token, e.Seen)
}

// Is reports whether target is ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// Fenced returns a sender of commands that pass a gate on the server with the data, which needs the module. The gate
// has a name of its own. Use one gate for everything that the lock protects. docs/commands/gate.md
func (l *Lock) Fenced(data Sender, gate string) *Fenced {
	return &Fenced{lock: l, data: data, gate: gate}
}

// FencedByLock is like [Lock.Fenced], but without a gate, where the data is on the lock's own server. The lock must be
// held.
func (l *Lock) FencedByLock(data Sender) *Fenced {
	return &Fenced{lock: l, data: data, gate: l.Key(), more: []any{"HELD"}}
}

// Keep returns the same sender with a gate that is forgotten this long after its last passing. The time must be longer
// than a late holder can sleep.
func (f *Fenced) Keep(keep time.Duration) *Fenced {
	kept := *f
	kept.more = append(kept.more[:len(kept.more):len(kept.more)], "KEEP", milliseconds(keep))
	kept.err = within("Keep", keep, time.Millisecond, keepMost)
	if len(f.more) > 0 {
		kept.err = badArgument("Keep is of a gate, and given once: the lock itself remembers nothing")
	}
	return &kept
}

// Do sends a command through the gate. The error of the result is [ErrFenced] or [ErrLost] if nothing was done, so stop.
// Errors of the command are those of go-redis. In a pipeline, [Fenced.Err] converts the error of the result.
func (f *Fenced) Do(ctx context.Context, args ...any) *redis.Cmd {
	if err := f.check(args); err != nil {
		refused := redis.NewCmd(ctx, args...)
		refused.SetErr(of(f.lock.Key(), err))
		return refused
	}
	cmd := redis.NewCmd(ctx, f.words(args)...)
	if err := f.Err(f.data.Process(ctx, cmd)); err != nil {
		cmd.SetErr(err)
	}
	return cmd
}

// Err returns the error of a command that was sent through the gate, as [Fenced.Do] does.
func (f *Fenced) Err(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.Nil) {
		return err
	}
	words := strings.SplitN(reply.Error(), " ", 3)
	switch {
	case words[0] == "FENCED" && len(words) > 1:
		f.lock.held.check()
		seen, _ := strconv.ParseInt(words[1], 10, 64)
		return of(f.lock.Key(), &FencedError{Token: f.lock.Token(), Seen: seen})
	case words[0] == "NOTHELD":
		f.lock.held.check()
		return of(f.lock.Key(), &LostError{Reason: TakenAway})
	case strings.HasPrefix(strings.ToLower(reply.Error()), "err unknown command"):
		const advice = "the data's server does not know LOCK.GATE: load the Palisade module there (docs/install.md)"
		unknown := &ServerError{Code: "ERR", Message: reply.Error(), kind: ErrMisconfigured, advice: advice}
		return of(f.lock.Key(), unknown)
	}
	return err
}

func (f *Fenced) words(args []any) []any {
	h := f.lock.held
	words := []any{"LOCK.GATE", f.gate, f.lock.Token()}
	words = append(words, h.gateMode()...)
	words = append(words, f.more...)
	return append(append(words, "COMMAND"), args...)
}

// check returns the reason why a command is not sent, if it is known without asking a server.
func (f *Fenced) check(args []any) error {
	switch {
	case f.err != nil:
		return f.err
	case f.data == nil:
		return badArgument("the client of the data must not be nil")
	case len(args) == 0:
		return badArgument("name a command")
	case f.lock.isReleased():
		return ErrReleased
	}
	return f.lock.held.state()
}

// gateMode returns the words that name the lock's mode to a gate. A semaphore with one permit is an exclusive lock.
func (h *held) gateMode() []any {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.isShared:
		return []any{"SHARED"}
	case h.limit > 1:
		return []any{"PERMIT", h.number}
	}
	return nil
}
