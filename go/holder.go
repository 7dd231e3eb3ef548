package locks

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
)

const (
	hostCharsMax = 32
	// The longest note that is made by default.
	defaultNoteMax = 200
)

var (
	// The end of a note that has a holder id.
	notedPattern    = regexp.MustCompile(`(?:^| )\[holder=[A-Za-z0-9._:/@+-]{1,64}\]$`)
	notInHostNames  = regexp.MustCompile(`[^A-Za-z0-9._:/@+-]`)
	host, _         = os.Hostname()
	processID       = newProcessID()
	flows           atomic.Int64
	defaultNoteText = cut(fmt.Sprintf("%s pid %d: %s", host, os.Getpid(), filepath.Base(os.Args[0])), defaultNoteMax)
)

// newProcessID returns an id of this process. Process ids repeat: in a restarted container, each time. Hence the random
// digits.
func newProcessID() string {
	name := cut(notInHostNames.ReplaceAllString(host, ""), hostCharsMax)
	return fmt.Sprintf("%s/%d/%s", name, os.Getpid(), randomHex(4))
}

func randomHex(bytes int) string {
	random := make([]byte, bytes)
	rand.Read(random) // Never fails.
	return hex.EncodeToString(random)
}

func cut(text string, most int) string {
	return text[:min(len(text), most)]
}

// A flow is a flow of control: what it holds and waits for has one holder id. It goes with the context of a lock.
type flow struct {
	id        string
	mu        sync.Mutex
	holds     map[string]int
	isWaiting bool
}

type flowKey struct{}

// flowFor returns the flow of ctx, which begins to wait for key. If that flow waits already, or has this lock, it returns a new
// one.
func flowFor(ctx context.Context, key string) *flow {
	if current, ok := ctx.Value(flowKey{}).(*flow); ok {
		current.mu.Lock()
		defer current.mu.Unlock()
		if !current.isWaiting && current.holds[key] == 0 {
			current.isWaiting = true
			return current
		}
	}
	return &flow{id: fmt.Sprintf("%s/%d", processID, flows.Add(1)), holds: map[string]int{}, isWaiting: true}
}

// waited ends the wait for key, which the flow has from now on if isHeld.
func (f *flow) waited(key string, isHeld bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isWaiting = false
	if isHeld {
		f.holds[key]++
	}
}

// letGo uncounts a lock that this flow held.
func (f *flow) letGo(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holds[key]--; f.holds[key] <= 0 {
		delete(f.holds, key)
	}
}

// noted returns the note with the holder id at its end, if there is room.
func noted(note, holder string) string {
	told := "[holder=" + holder + "]"
	if note != "" {
		told = note + " " + told
	}
	if len(told) > noteBytesMax {
		return note
	}
	return told
}

// withoutHolder returns the note as people read it.
func withoutHolder(note string) string {
	return notedPattern.ReplaceAllString(note, "")
}
