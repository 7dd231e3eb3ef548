// The driver for the Go package. conformance/README.md, "Drivers", describes its requests and answers.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"palisade/locks"

	"github.com/redis/go-redis/v9"
)

type request struct {
	ID      int    `json:"id"`
	Do      string `json:"do"`
	Address string `json:"address"`
	As      string `json:"as"`
	Key     string `json:"key"`
	TTL     *int   `json:"ttl_ms"`
	Wait    *int   `json:"wait_ms"`
	// Note is nil where none is given.
	Note    *string  `json:"note"`
	Limit   int      `json:"limit"`
	Extend  *bool    `json:"extend"`
	Of      any      `json:"of"`
	Gate    string   `json:"gate"`
	Held    bool     `json:"held"`
	Words   []any    `json:"words"`
	Value   string   `json:"value"`
	MinHold int      `json:"min_hold_ms"`
	Keys    []string `json:"keys"`
}

type answer map[string]any

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// A driver has the client, and the locks that requests refer to by name.
type driver struct {
	mu      sync.Mutex
	client  *locks.Client
	data    *redis.Client
	adopter *locks.Client
	groups  map[string][]*locks.Lock
	held    map[string]*locks.Lock
	cancels map[int]context.CancelFunc
}

func main() {
	// Log lines need not be shown: the driver's answers report the same.
	redis.SetLogger(silent{})
	d := &driver{held: map[string]*locks.Lock{}, cancels: map[int]context.CancelFunc{}}
	var out sync.Mutex
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		ctx := d.begin(asked)
		go func() {
			said, err := d.perform(ctx, asked)
			if err != nil {
				said = failed(err)
			}
			if said == nil {
				said = answer{}
			}
			said["id"] = asked.ID
			line, _ := json.Marshal(said)
			out.Lock()
			defer out.Unlock()
			os.Stdout.Write(append(line, '\n'))
		}()
	}
}

// begin returns the context of a request, which a later one may cancel.
func (d *driver) begin(asked request) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancels[asked.ID] = cancel
	return ctx
}

func (d *driver) perform(ctx context.Context, asked request) (answer, error) {
	switch asked.Do {
	case "open":
		return nil, d.open(asked.Address)
	case "lock", "read", "write", "permit":
		return d.take(ctx, asked)
	case "cancel":
		d.mu.Lock()
		defer d.mu.Unlock()
		d.cancels[int(asked.Of.(float64))]()
		return nil, nil
	case "close":
		return nil, d.now().Close()
	case "leader", "campaign", "once", "all", "release_all":
		return d.build(ctx, asked)
	case "look", "extend", "reenter", "release", "leave", "until_lost", "gated", "resign", "adopt", "downgrade":
		name, _ := asked.Of.(string)
		d.mu.Lock()
		lock := d.held[name]
		d.mu.Unlock()
		return d.use(ctx, asked, lock)
	}
	return answer{"error": "unsupported"}, nil
}

func (d *driver) now() *locks.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.client
}

func (d *driver) open(address string) error {
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	// Ten seconds, since the machine that runs the scenarios may be busy.
	client, err := locks.Open(address, locks.AnswerWithin(10*time.Second), locks.Logger(logger))
	at, _ := redis.ParseURL(address)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client != nil {
		go d.client.Close()
		d.data.Close()
		go d.adopter.Close()
	}
	d.data = redis.NewClient(at)
	d.groups = map[string][]*locks.Lock{}
	d.adopter, _ = locks.Open(address, locks.AnswerWithin(10*time.Second), locks.Logger(logger))
	d.client, d.held = client, map[string]*locks.Lock{}
	return err
}

func (d *driver) take(ctx context.Context, asked request) (answer, error) {
	var options []locks.Option
	if asked.TTL != nil {
		options = append(options, locks.TTL(time.Duration(*asked.TTL)*time.Millisecond))
	}
	if asked.Wait != nil {
		options = append(options, locks.Wait(time.Duration(*asked.Wait)*time.Millisecond))
	}
	if asked.Note != nil {
		options = append(options, locks.Note(*asked.Note))
	}
	if asked.Extend != nil {
		options = append(options, locks.AutoExtend(*asked.Extend))
	}
	client := d.now()
	take := client.Lock
	switch asked.Do {
	case "read":
		take = client.ReadLock
	case "write":
		take = client.WriteLock
	case "permit":
		take = func(ctx context.Context, key string, options ...locks.Option) (*locks.Lock, error) {
			return client.Semaphore(key, asked.Limit).Acquire(ctx, options...)
		}
	}
	lock, err := take(ctx, asked.Key, options...)
	if err != nil {
		return nil, err
	}
	return d.name(asked.As, lock), nil
}

// name stores a lock under a name.
func (d *driver) name(as string, lock *locks.Lock) answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[as] = lock
	said := answer{"token": lock.Token()}
	if number := lock.Number(); number > 0 {
		said["number"] = number
	}
	return said
}

func (d *driver) use(ctx context.Context, asked request, lock *locks.Lock) (answer, error) {
	switch asked.Do {
	case "look":
		valid := lock.ValidFor()
		return answer{"valid_for_ms": float64(valid) / float64(time.Millisecond), "valid": valid > 0, "token": lock.Token()}, nil
	case "resign":
		return nil, lock.Unlock(ctx)
	case "downgrade":
		return nil, lock.Downgrade(ctx)
	case "adopt":
		return d.adopt(ctx, asked.As, lock)
	case "gated":
		said, err := d.fenced(lock, asked).Do(ctx, asked.Words...).Result()
		return answer{"said": said}, err
	case "extend":
		return nil, lock.Extend(ctx, 0)
	case "reenter":
		inner, err := lock.Reenter(ctx)
		if err != nil {
			return nil, err
		}
		return d.name(asked.As, inner), nil
	case "release":
		switch err := lock.Unlock(ctx); {
		case err == nil:
			return answer{"was_held": true}, nil
		case errors.Is(err, locks.ErrLost):
			return answer{"was_held": false}, nil
		case errors.Is(err, locks.ErrUnknown):
			return answer{"was_held": nil}, nil
		default:
			return nil, err
		}
	case "leave":
		if err := lock.Unlock(ctx); err != nil && !errors.Is(err, locks.ErrUnknown) {
			return nil, err
		}
		return answer{"left": true}, nil
	default:
		<-lock.Context().Done()
		var lost *locks.LostError
		if errors.As(context.Cause(lock.Context()), &lost) {
			return answer{"reason": string(lost.Reason)}, nil
		}
		// A lock that is released is never lost.
		select {}
	}
}

// adopt hands a lock over to the other client. A lock that was already released cannot be handed over.
func (d *driver) adopt(ctx context.Context, as string, lock *locks.Lock) (answer, error) {
	owner, token := lock.Owner(), lock.Token()
	if lock.IsValid() {
		var err error
		if owner, token, err = lock.HandOver(ctx); err != nil {
			return nil, err
		}
	}
	adopted, err := d.adopter.Adopt(ctx, lock.Key(), owner, token)
	if err != nil {
		return nil, err
	}
	return d.name(as, adopted), nil
}

// build performs the requests about semaphores, elections and the like, which are built from locks.
func (d *driver) build(ctx context.Context, asked request) (answer, error) {
	client := d.now()
	var options []locks.Option
	if asked.TTL != nil {
		options = append(options, locks.TTL(time.Duration(*asked.TTL)*time.Millisecond))
	}
	switch asked.Do {
	case "leader":
		leader, err := client.Election(asked.Key).Leader(ctx)
		if leader == nil || err != nil {
			return answer{"value": nil}, err
		}
		return answer{"value": leader.Value, "term": leader.Term}, nil
	case "campaign":
		leadership, err := client.Election(asked.Key).Campaign(ctx, asked.Value, options...)
		if err != nil {
			return nil, err
		}
		d.name(asked.As, leadership.Lock)
		return answer{"term": leadership.Term()}, nil
	case "once":
		nothing := func(context.Context, *locks.Lock) error { return nil }
		ran, err := client.Once(ctx, asked.Key, time.Duration(asked.MinHold)*time.Millisecond, nothing)
		return answer{"ran": ran}, err
	case "all":
		all, err := client.LockAll(ctx, asked.Keys, options...)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.groups[asked.As] = all
		return nil, err
	}
	name, _ := asked.Of.(string)
	d.mu.Lock()
	all := d.groups[name]
	d.mu.Unlock()
	return nil, locks.UnlockAll(ctx, all)
}

// fenced returns the sender of commands through the gate that the request names.
func (d *driver) fenced(lock *locks.Lock, asked request) *locks.Fenced {
	d.mu.Lock()
	defer d.mu.Unlock()
	if asked.Held {
		return lock.FencedByLock(d.data)
	}
	return lock.Fenced(d.data, asked.Gate)
}

// failed returns the answer that reports an error.
func failed(err error) answer {
	var (
		notAcquired *locks.NotAcquiredError
		lost        *locks.LostError
		fenced      *locks.FencedError
		refused     *locks.ServerError
	)
	errors.As(err, &refused)
	switch {
	case errors.As(err, &notAcquired):
		said := answer{"error": "not-acquired", "reason": string(notAcquired.Reason)}
		if notAcquired.Holder != nil {
			said["holder"] = notAcquired.Holder.Note
		}
		return said
	case errors.As(err, &fenced):
		return answer{"error": "fenced", "seen": fenced.Seen}
	case errors.As(err, &lost):
		return answer{"error": "lost", "reason": string(lost.Reason)}
	case errors.Is(err, locks.ErrReleased):
		return answer{"error": "lost"}
	case errors.Is(err, context.Canceled):
		return answer{"error": "cancelled"}
	case errors.Is(err, locks.ErrGuarded):
		return answer{"error": "guarded", "message": err.Error(), "retry_after_ms": refused.RetryAfter.Milliseconds()}
	case refused != nil && !errors.Is(err, locks.ErrMisconfigured) && !errors.Is(err, locks.ErrNoQuorum):
		return answer{"error": "server", "message": err.Error()}
	}
	for kind, word := range map[error]string{
		locks.ErrNoQuorum: "unavailable", locks.ErrUnavailable: "unavailable", locks.ErrMisconfigured: "misconfigured",
		locks.ErrBadArgument: "bad-argument", locks.ErrUnexpectedReply: "unexpected-reply", locks.ErrClosed: "closed",
	} {
		if errors.Is(err, kind) {
			return answer{"error": word, "message": err.Error()}
		}
	}
	return answer{"error": "other", "message": err.Error()}
}
