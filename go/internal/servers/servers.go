// Package servers starts real servers for tests: one node with the module, or an agent with five nodes behind it.
package servers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const patience = 20 * time.Second

var (
	_, thisFile, _, _ = runtime.Caller(0)
	root              = filepath.Join(filepath.Dir(thisFile), "../../..")
	serverPath        = fromEnvironment("PALISADE_SERVER", "redis-server")
	modulePath        = fromEnvironment("PALISADE_MODULE", filepath.Join(root, "target/debug/libpalisade.so"))
	programPath       = fromEnvironment("PALISADE_PROGRAM", filepath.Join(root, "target/debug/palisade"))
	keys              atomic.Int64
	waiting           = regexp.MustCompile(`(?m)^waiting:(\d+)`)
)

func fromEnvironment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// Key returns a key that no other test uses.
func Key() string { return fmt.Sprintf("key:%d", keys.Add(1)) }

// Eventually waits until condition holds.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// Passes waits until this much time has passed.
func Passes(t testing.TB, d time.Duration) {
	until := time.Now().Add(d)
	Eventually(t, fmt.Sprint(d, " pass"), func() bool { return time.Now().After(until) })
}

// A Server is a node or an agent.
type Server struct {
	Path    string
	URL     string
	isAgent bool
	// Nodes are the servers behind an agent.
	Nodes []*Server
	// Outside sends raw commands, to inspect locks from outside and to act as an operator.
	Outside *redis.Client
	args    []string
	process *exec.Cmd
	ended   chan struct{}
}

func start(t testing.TB, name string, program string, args ...string) *Server {
	t.Helper()
	folder := filepath.Dir(name)
	s := &Server{Path: name, URL: "unix://" + name, args: append([]string{program}, args...)}
	s.Outside = redis.NewClient(&redis.Options{Network: "unix", Addr: name, ReadTimeout: patience})
	s.run(t, folder)
	t.Cleanup(func() {
		s.Outside.Close()
		s.Kill()
	})
	return s
}

func (s *Server) run(t testing.TB, folder string) {
	t.Helper()
	s.process = exec.Command(s.args[0], s.args[1:]...)
	s.process.Dir = folder
	// It ends with the test program, however that ends.
	s.process.SysProcAttr = EndsWithParent()
	if err := s.process.Start(); err != nil {
		t.Fatalf("%s cannot be started: %v", s.args[0], err)
	}
	process, ended := s.process, make(chan struct{})
	s.ended = ended
	go func() {
		process.Wait()
		close(ended)
	}()
	Eventually(t, s.args[0]+" listens", func() bool {
		select {
		case <-ended:
			t.Fatalf("it has ended instead of listening: %v", s.args)
		default:
		}
		return s.Outside.Ping(context.Background()).Err() == nil
	})
}

// Node starts a server with the module, without a guard: nobody holds a lock of a new server.
func Node(t testing.TB, more ...string) *Server {
	t.Helper()
	return node(t, 0, append([]string{"--loadmodule", modulePath}, more...))
}

// Bare starts a server without the module.
func Bare(t testing.TB) *Server {
	t.Helper()
	return node(t, 0, nil)
}

func node(t testing.TB, port int, more []string) *Server {
	t.Helper()
	if _, err := os.Stat(modulePath); err != nil {
		t.Fatalf("the module is not built (cargo build, or PALISADE_MODULE): %v", err)
	}
	folder := t.TempDir()
	path := filepath.Join(short(t), "node.sock")
	args := append([]string{"--unixsocket", path, "--save", "", "--dir", folder, "--port", strconv.Itoa(port)}, more...)
	s := start(t, path, serverPath, args...)
	if len(more) > 0 {
		s.Lift(t)
	}
	return s
}

// short returns a folder whose name fits into the address of a socket.
func short(t testing.TB) string {
	folder, err := os.MkdirTemp("", "palisade-go-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// Agent starts an agent with five nodes behind it.
func Agent(t testing.TB) *Server {
	t.Helper()
	var nodes []*Server
	var addresses []string
	for range 5 {
		port := FreePort(t)
		nodes = append(nodes, node(t, port, []string{"--loadmodule", modulePath}))
		addresses = append(addresses, fmt.Sprintf("redis://127.0.0.1:%d", port))
	}
	path := filepath.Join(short(t), "agent.sock")
	s := start(t, path, programPath, "agent", "--listen", "unix://"+path, "--nodes", strings.Join(addresses, ","),
		// The machine of the tests may be busy.
		"--node-timeout", "500ms")
	s.isAgent, s.Nodes = true, nodes
	return s
}

// FreePort returns a port that nobody listens on.
func FreePort(t testing.TB) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// shared is the agent of the tests that run on each kind of server, one at a time: it counts all waiters together.
var shared struct {
	sync.Mutex
	agent *Server
}

// ShareAgent starts the agent of OnEach.
func ShareAgent(t testing.TB) { shared.agent = Agent(t) }

// OnEach runs a test on a node, and on an agent.
func OnEach(t *testing.T, test func(t *testing.T, server *Server)) {
	t.Run("node", func(t *testing.T) {
		t.Parallel()
		test(t, Node(t))
	})
	t.Run("agent", func(t *testing.T) {
		shared.Lock()
		defer shared.Unlock()
		test(t, shared.agent)
	})
}

// Say sends a raw command.
func (s *Server) Say(words ...any) (any, error) {
	return s.Outside.Do(context.Background(), words...).Result()
}

// Lift lifts the guard.
func (s *Server) Lift(t testing.TB) {
	Eventually(t, "the guard is lifted", func() bool {
		left, err := s.Outside.Do(context.Background(), "LOCK.GUARD", "LIFT").Int()
		return err == nil && left == 0
	})
}

// Info returns a number of LOCK.INFO; 0 if nobody holds the lock.
func (s *Server) Info(key, field string) int64 {
	info, _ := s.Say("LOCK.INFO", key, "WAITERS", 1000)
	fields, _ := info.(map[any]any)
	number, _ := fields[field].(int64)
	return number
}

// Note returns the note of the lock's holder.
func (s *Server) Note(key string) string {
	info, _ := s.Say("LOCK.INFO", key)
	fields, _ := info.(map[any]any)
	note, _ := fields["note"].(string)
	return note
}

// Waiters returns how many wait for the lock. An agent stands in the queues of its nodes once for all of them.
func (s *Server) Waiters(key string) int64 {
	if !s.isAgent {
		return s.Info(key, "waiters")
	}
	info, _ := s.Say("INFO", "palisade")
	if found := waiting.FindStringSubmatch(fmt.Sprint(info)); found != nil {
		number, _ := strconv.ParseInt(found[1], 10, 64)
		return number
	}
	return -1
}

// AwaitWaiters waits until that many are in the queue.
func (s *Server) AwaitWaiters(t testing.TB, key string, number int64) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%d wait for %s", number, key), func() bool { return s.Waiters(key) == number })
}

// AwaitFree waits until nobody holds the lock or waits for it.
func (s *Server) AwaitFree(t testing.TB, key string) {
	t.Helper()
	Eventually(t, key+" is free", func() bool { return s.Info(key, "holders") == 0 && s.Waiters(key) == 0 })
}

// Disconnect ends all connections of others.
func (s *Server) Disconnect(t testing.TB) {
	if _, err := s.Say("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"); err != nil {
		t.Fatal(err)
	}
}

// Stop stops the process until Continue.
func (s *Server) Stop() { s.process.Process.Signal(syscall.SIGSTOP) }

// Continue continues a stopped process.
func (s *Server) Continue() { s.process.Process.Signal(syscall.SIGCONT) }

// Kill ends the server as `kill -9` does.
func (s *Server) Kill() {
	s.process.Process.Kill()
	<-s.ended
}

// Restart starts a server again that was killed, at the same place.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.run(t, s.process.Dir)
	s.Lift(t)
}
