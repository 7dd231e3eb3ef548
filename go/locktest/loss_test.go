package locktest_test

import (
	"context"
	"errors"
	"testing"

	"palisade/locks"
	"palisade/locks/locktest"
)

// importAll is the program under test: it stops when its lock is lost.
func importAll(ctx context.Context, client *locks.Client, each func(ctx context.Context) error) error {
	return client.WithLock(ctx, "import", func(ctx context.Context, lock *locks.Lock) error {
		for range 3 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := each(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestAProgramStopsWhenItsLockIsLost(t *testing.T) {
	server := locktest.New(t)
	done := 0
	err := importAll(context.Background(), server.Client(), func(context.Context) error {
		done++
		server.TakeAway("import")
		return nil
	})
	if done != 1 || !errors.Is(err, locks.ErrLost) {
		t.Fatal(done, err)
	}
}
