package locks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"
)

// What an agent answers while too few nodes can be reached.
const noQuorum = "NOQUORUM 1 of 3 nodes answered, and 2 are needed"

// A campaigning is a campaign of a candidate who has won, and whose proclamations are refused.
type campaigning struct {
	node   *servers.Server
	way    *servers.Way
	client *locks.Client
	name   string
	came   chan won
}

type won struct {
	leadership *locks.Leadership
	err        error
}

// campaignRefused begins a campaign, and returns once two of its proclamations were refused.
func campaignRefused(t *testing.T, ctx context.Context, refusal string, options ...locks.Option) *campaigning {
	t.Helper()
	node := servers.Node(t)
	way := servers.WayTo(t, node)
	c := &campaigning{node, way, open(t, way.URL, locks.TTL(time.Minute)), servers.Key(), make(chan won, 1)}
	way.Count("LOCK.NOTE")
	way.Count("LOCK.ACQUIRE")
	way.Refuse("LOCK.NOTE", refusal)
	go func() {
		leadership, err := c.client.Election(c.name).Campaign(ctx, "me", options...)
		c.came <- won{leadership, err}
	}()
	servers.Eventually(t, "two proclamations are refused", func() bool {
		if len(c.came) > 0 {
			t.Fatalf("the campaign has ended: %v", (<-c.came).err)
		}
		return way.Sent("LOCK.NOTE") > 1
	})
	return c
}

func TestAWinnerProclaimsAgainOnceNodesReturn(t *testing.T) {
	t.Parallel()
	for _, refused := range []struct {
		refusal string
		options []locks.Option
	}{
		{noQuorum, []locks.Option{locks.Wait(time.Minute)}},
		{noQuorum, nil},
		// This server cannot be reached for now.
		{"ERR max number of clients reached", []locks.Option{locks.Wait(time.Minute)}},
	} {
		c := campaignRefused(t, ctx, refused.refusal, refused.options...)
		c.way.Refuse("", "")
		came := soon(t, c.came)
		if came.err != nil {
			t.Fatal(came.err)
		}
		if told, err := c.client.Election(c.name).Leader(ctx); err != nil || told == nil || told.Value != "me" {
			t.Fatal(told, err)
		}
		if n := c.way.Sent("LOCK.ACQUIRE"); n != 1 {
			t.Fatalf("it acquired the lock %d times", n)
		}
		unlocked(t, came.leadership.Lock)
	}
}

func TestAWinnerWhoIsRefusedGivesTheLockBackAtTheEndOfTheWait(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := campaignRefused(t, ctx, noQuorum, locks.Wait(2*time.Second))
	is(t, soon(t, c.came).err, locks.ErrNoQuorum)
	if waited := time.Since(began); waited < 2*time.Second {
		t.Fatalf("the wait ended after %v", waited)
	}
	c.node.AwaitFree(t, c.name)
}

func TestAWinnerWhoLosesTheLockBeforeItsProclamationCampaignsAgain(t *testing.T) {
	t.Parallel()
	c := campaignRefused(t, ctx, noQuorum)
	first := c.node.Info(c.name, "token")
	broken(t, c.node, c.name)
	c.way.Refuse("", "")
	came := soon(t, c.came)
	if came.err != nil || came.leadership.Term() <= first {
		t.Fatal(came, first)
	}
	unlocked(t, came.leadership.Lock)
}

func TestAContextEndsAProclamationThatIsRefused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := campaignRefused(t, ctx, noQuorum)
	cancel()
	err := soon(t, c.came).err
	is(t, err, context.Canceled)
	var named *locks.LockError
	if !errors.As(err, &named) || named.Key != c.name {
		t.Fatal(err)
	}
	c.node.AwaitFree(t, c.name)
}

func TestAClientThatIsClosedEndsAProclamationThatIsRefused(t *testing.T) {
	t.Parallel()
	c := campaignRefused(t, ctx, noQuorum)
	c.client.Close()
	var lost *locks.LostError
	if err := soon(t, c.came).err; !errors.As(err, &lost) || lost.Reason != locks.ClientClosed {
		t.Fatal(err)
	}
	c.node.AwaitFree(t, c.name)
}

func TestALastingErrorEndsACampaign(t *testing.T) {
	t.Parallel()
	node := servers.Node(t)
	way := servers.WayTo(t, node)
	name := servers.Key()
	way.Count("LOCK.NOTE")
	way.Refuse("LOCK.NOTE", "NOPERM this user may not")
	_, err := open(t, way.URL).Election(name).Campaign(ctx, "me", locks.Wait(time.Minute))
	is(t, err, locks.ErrMisconfigured)
	if n := way.Sent("LOCK.NOTE"); n != 1 {
		t.Fatalf("it proclaimed %d times", n)
	}
	node.AwaitFree(t, name)
}
