package locks

import (
	"fmt"
	"log/slog"
	"regexp"
	"time"
)

const (
	day = 24 * time.Hour
	// The longest note that servers accept.
	noteBytesMax = 1024
	// The shortest lease: a shorter one is most likely meant in another unit, and it is extended three times in its length.
	ttlLeast   = 100 * time.Millisecond
	permitsMax = 65_535
	// The longest wait of one request on a server.
	waitMax = day

	ttlDefault     = 10 * time.Second
	maxHoldDefault = time.Hour
	answerDefault  = 3 * time.Second
)

var holderPattern = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]{1,64}$`)

// An Option of acquiring and keeping a lock, or of a Client for all its locks.
type Option func(*settings)

// settings are the values of the options, and which options were given.
type settings struct {
	ttl        time.Duration
	wait       time.Duration
	waits      bool
	note       *string
	holder     string
	autoExtend bool
	maxHold    time.Duration
	// minHold is the least length of the first lease.
	minHold      time.Duration
	answerWithin time.Duration
	logger       *slog.Logger
	listener     Listener
	class        string
	wrong        error
	// set has the names of the options that were given.
	set map[string]bool
}

func option(name string, apply func(*settings) error) Option {
	return func(s *settings) {
		s.set[name] = true
		if err := apply(s); err != nil && s.wrong == nil {
			s.wrong = err
		}
	}
}

// TTL sets the length of the lease: others wait this long after a holder dies. 10 s by default; from 100 ms to the server's
// lock.max-ttl (60 s by default).
func TTL(ttl time.Duration) Option {
	return option("TTL", func(s *settings) error {
		s.ttl = ttl
		return checkTTL(ttl)
	})
}

// Wait limits the wait for the lock, up to a day; 0 for no wait. Without it, only the context does.
func Wait(wait time.Duration) Option {
	return option("Wait", func(s *settings) error {
		s.wait, s.waits = wait, true
		return within("Wait", wait, 0, waitMax)
	})
}

// Note sets a note for people, up to 1024 bytes: who holds the lock, and what for. Clients that find the lock held see it.
// Host, process and program by default.
func Note(note string) Option {
	return option("Note", func(s *settings) error {
		s.note = &note
		if len(note) > noteBytesMax {
			return badArgument("the note must be at most %d bytes long, not %d", noteBytesMax, len(note))
		}
		return nil
	})
}

// HolderID sets one id for everything that one flow of control holds and waits for. `palisade deadlocks` uses it to find
// holders that wait for each other. 1 to 64 letters, digits, and . _ : / @ + -. By default, a lock that is acquired with the
// context of another lock has that one's id.
func HolderID(id string) Option {
	return option("HolderID", func(s *settings) error {
		s.holder = id
		if !holderPattern.MatchString(id) {
			return badArgument("the holder id must be 1 to 64 letters, digits, . _ : / @ + or -, not %q", id)
		}
		return nil
	})
}

// AutoExtend says whether the lease is extended in the background, whenever a third of it has passed. It is by default.
func AutoExtend(extend bool) Option {
	return option("AutoExtend", func(s *settings) error {
		s.autoExtend = extend
		return nil
	})
}

// MaxHold limits how long the lease is extended: a holder that hangs then loses the lock. An hour by default.
func MaxHold(most time.Duration) Option {
	return option("MaxHold", func(s *settings) error {
		s.maxHold = most
		if most < 0 {
			return badArgument("MaxHold must not be below 0, and is %v", most)
		}
		return nil
	})
}

// Listen sets the listener that receives the events of the lock, for metrics.
func Listen(listener Listener) Option {
	return option("Listen", func(s *settings) error {
		s.listener = listener
		if listener == nil {
			return badArgument("the Listener must not be nil")
		}
		return nil
	})
}

// Class sets the kind of the lock for its Listener, "default" by default. Use few classes: metrics keep each as long as the
// program runs.
func Class(class string) Option {
	return option("Class", func(s *settings) error {
		s.class = class
		return nil
	})
}

// AnswerWithin sets the server's time to answer, 3 s by default; waiting for a lock does not count. It is an option of a Client.
func AnswerWithin(limit time.Duration) Option {
	return option("AnswerWithin", func(s *settings) error {
		s.answerWithin = limit
		return within("AnswerWithin", limit, time.Millisecond, day)
	})
}

// Logger sets where problems go that are no caller's error, [slog.Default] by default. It is an option of a Client.
func Logger(logger *slog.Logger) Option {
	return option("Logger", func(s *settings) error {
		s.logger = logger
		if logger == nil {
			return badArgument("the Logger must not be nil")
		}
		return nil
	})
}

// ofClient has the names of options that are of a Client alone.
var ofClient = []string{"AnswerWithin", "Logger"}

// with returns the settings, overridden by options.
func (s settings) with(options []Option) settings {
	s.set = map[string]bool{}
	for _, option := range options {
		if option == nil {
			s.wrong = badArgument("an option must not be nil")
			return s
		}
		option(&s)
	}
	return s
}

// withLock returns the settings of one lock.
func (s settings) withLock(options []Option) (settings, error) {
	s = s.with(options)
	for _, name := range ofClient {
		if s.set[name] && s.wrong == nil {
			s.wrong = badArgument("%s is an option of a Client, not of one lock", name)
		}
	}
	return s, s.wrong
}

// withTry returns the settings of one lock that is not waited for.
func (s settings) withTry(options []Option) (settings, error) {
	s, err := s.withLock(options)
	if err == nil && s.set["Wait"] {
		err = badArgument("a lock that is tried is not waited for: leave Wait out, or call Lock")
	}
	s.wait, s.waits = 0, true
	return s, err
}

// defaults are the settings of a Client without options.
func defaults() settings {
	return settings{
		ttl: ttlDefault, autoExtend: true, maxHold: maxHoldDefault, answerWithin: answerDefault, logger: slog.Default(),
		listener: silent{}, class: "default",
	}
}

func checkTTL(ttl time.Duration) error {
	return within("TTL", ttl, ttlLeast, day)
}

func checkLimit(limit int) error {
	if limit < 1 || limit > permitsMax {
		return badArgument("the limit must be from 1 to %d, not %d", permitsMax, limit)
	}
	return nil
}

// within returns an error unless d lies within these bounds, and is a whole number of the server's milliseconds.
func within(name string, d, least, most time.Duration) error {
	if d >= least && d <= most && d%time.Millisecond == 0 {
		return nil
	}
	hint := ""
	if d > 0 && d < 100*time.Microsecond {
		hint = fmt.Sprintf(" (a number alone is nanoseconds: write %d*time.Second)", int64(d))
	}
	return badArgument("%s must be whole milliseconds from %v to %v, not %v%s", name, least, most, d, hint)
}
