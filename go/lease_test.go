package locks

import (
	"errors"
	"testing"
	"time"
)

const second = instant(time.Second)

func tenSeconds(change func(*settings)) *lease {
	s := defaults()
	if change != nil {
		change(&s)
	}
	return newLease(s, 110*second, 100*second)
}

func TestALeaseIsExtendedWhenAThirdHasPassed(t *testing.T) {
	t.Parallel()
	l := tenSeconds(nil)
	if due := l.sleep(100 * second); due.Round(time.Millisecond) != 3333*time.Millisecond {
		t.Fatal(due)
	}
	if l.isDue(103*second) || !l.isDue(104*second) {
		t.Fatal(l.extendAt)
	}
	l.failed(104*second, errors.New("no answer"))
	if again := l.sleep(104 * second); again != 500*time.Millisecond {
		t.Fatal("a failed extension is repeated after a twentieth of the ttl, not", again)
	}
	l.extended(114 * second)
	if l.validUntil != 114*second || l.lastFailure != nil {
		t.Fatal(l.validUntil)
	}
	l.extended(112 * second)
	if l.validUntil != 114*second {
		t.Fatal("a lease that lasts longer stays")
	}
}

func TestAnExtensionIsAnsweredBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	l := tenSeconds(nil)
	if l.answerWithin(104*second) != time.Second || l.answerWithin(109*second+second/2) != time.Second/2 {
		t.Fatal(l.answerWithin(104*second), l.answerWithin(109*second+second/2))
	}
}

func TestALeaseIsLostForAReason(t *testing.T) {
	t.Parallel()
	off := func(s *settings) { s.autoExtend = false }
	most := func(s *settings) { s.maxHold = 5 * time.Second }
	for _, one := range []struct {
		change func(*settings)
		at     instant
		reason LossReason
	}{
		{nil, 110*second - 1, ""},
		{nil, 110 * second, NotExtendedInTime},
		{off, 110 * second, NotExtended},
		{most, 110 * second, MaxHoldReached},
		{nil, 120 * second, Asleep},
		{off, 120 * second, Asleep},
	} {
		l := tenSeconds(one.change)
		l.sleep(106 * second)
		l.wakeAt = 110 * second
		lost := l.loss(one.at)
		if lost == nil && one.reason != "" || lost != nil && lost.Reason != one.reason {
			t.Errorf("%v at %v, and %v was expected", lost, time.Duration(one.at), one.reason)
		}
	}
}

func TestALeaseIsNotExtendedBeyondItsLimit(t *testing.T) {
	t.Parallel()
	l := tenSeconds(func(s *settings) { s.maxHold = 2 * time.Second })
	if l.isDue(109*second) || l.sleep(103*second) != 7*time.Second {
		t.Fatal("it is not due")
	}
	if left := l.checkTTL(104 * second); left != 6*time.Second {
		t.Fatal("a check keeps what is left, which is not", left)
	}
}

func TestTheMarginIsAPercentAndTwoMilliseconds(t *testing.T) {
	t.Parallel()
	if until := validUntil(100*second, time.Second, 9*time.Second); until != 109*second+898*instant(time.Millisecond) {
		t.Fatal(time.Duration(until))
	}
}

func TestAKeyIsShownAsText(t *testing.T) {
	t.Parallel()
	if text := shown("a\nb\x1b[2J"); text != `a\nb\x1b[2J` {
		t.Fatal(text)
	}
	if text := shown(string(make([]rune, 200))); len(text) > 1000 {
		t.Fatal(text)
	}
}
