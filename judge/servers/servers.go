// Package servers starts real servers, each with its own folder, and stops, pauses or kills them as a machine's faults
// would.
package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"palisade/judge/resp"
)

// Plan says how servers are started.
type Plan struct {
	Program string   // redis-server or valkey-server
	Module  string   // the path of the module; none where it is empty
	Options []string // of the module
	Args    []string // of the server
	Folder  string   // in which each server gets one
	Cluster bool     // the server becomes part of a cluster
	Shim    string   // makes the wall clock follow a file; none where it is empty
}

// Server is a server, or an agent, with its folder.
type Server struct {
	port    int
	bus     int // the port of a cluster's bus
	folder  string
	offset  string // the file of the wall clock's offset
	command func() *exec.Cmd
	process *exec.Cmd
}

// Start starts a server on a free port, and waits until it answers.
func Start(plan Plan, number int) (*Server, error) {
	server, err := place(plan.Folder, strconv.Itoa(number))
	if err != nil {
		return nil, err
	}
	args := append([]string{"--port", strconv.Itoa(server.port), "--dir", server.folder, "--bind", "127.0.0.1"}, plan.Args...)
	if plan.Cluster {
		if server.bus, err = freePort(); err != nil {
			return nil, err
		}
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(server.bus), "--cluster-node-timeout", "5000", "--cluster-replica-no-failover", "yes")
	}
	if plan.Module != "" {
		args = append(append(args, "--loadmodule", plan.Module), plan.Options...)
	}
	server.command = func() *exec.Cmd {
		command := exec.Command(plan.Program, args...)
		if plan.Shim != "" {
			command.Env = append(os.Environ(), "LD_PRELOAD="+plan.Shim, "WALL_CLOCK_OFFSET_FILE="+server.offset)
		}
		return command
	}
	if err := server.StepWallClock(0); err != nil {
		return nil, err
	}
	return server, server.Run()
}

// StartAgent starts an agent over nodes on a free port, and waits until it answers.
func StartAgent(program, folder string, number int, nodes []string) (*Server, error) {
	agent, err := place(folder, fmt.Sprintf("agent-%d", number))
	if err != nil {
		return nil, err
	}
	agent.command = func() *exec.Cmd {
		return exec.Command(program, "agent", "--listen", agent.Address(), "--nodes", strings.Join(nodes, ","))
	}
	return agent, agent.Run()
}

// place makes a folder, and finds a free port.
func place(folder, name string) (*Server, error) {
	folder, err := filepath.Abs(filepath.Join(folder, name))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return &Server{port: port, folder: folder, offset: filepath.Join(folder, "wall-clock-offset")}, nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// Address is where the server listens.
func (server *Server) Address() string {
	return fmt.Sprintf("127.0.0.1:%d", server.port)
}

// Ports returns the host, the port for clients, and the port of the cluster bus.
func (server *Server) Ports() (host, port, bus string) {
	return "127.0.0.1", strconv.Itoa(server.port), strconv.Itoa(server.bus)
}

// Run starts the process, and waits until it answers.
func (server *Server) Run() error {
	log, err := os.OpenFile(filepath.Join(server.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	server.process = server.command()
	server.process.Stdout, server.process.Stderr = log, log
	// The server ends when the recorder ends, even if the recorder is killed.
	server.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.process.Start(); err != nil {
		return fmt.Errorf("%s does not start: %w: install it, or name another one", server.process.Path, err)
	}
	return server.answers()
}

// answers waits until the server has loaded its data.
func (server *Server) answers() error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if answer, err := server.Do("PING"); err == nil && answer == "PONG" {
			return nil
		}
	}
	return errors.New("a server does not answer: see " + filepath.Join(server.folder, "log"))
}

// Do sends one request over a connection of its own.
func (server *Server) Do(words ...string) (interface{}, error) {
	conn, err := resp.Dial(server.Address(), time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.Do(2*time.Second, words...)
}

// Say sends one request. A refusal of the server is returned as an error.
func (server *Server) Say(words ...string) error {
	answer, err := server.Do(words...)
	if refused, isRefused := answer.(resp.Error); err == nil && isRefused {
		err = fmt.Errorf("%v is refused: %s", words, refused)
	}
	return err
}

// Kill ends the process with kill -9.
func (server *Server) Kill() {
	_ = server.process.Process.Kill()
	_ = server.process.Wait()
}

// end ends the process with an orderly shutdown, and waits until it has ended.
func (server *Server) end() {
	_ = server.process.Process.Signal(syscall.SIGTERM)
	_ = server.process.Wait()
}

// Restart ends the process with an orderly shutdown, and starts it again.
func (server *Server) Restart() error {
	server.end()
	return server.Run()
}

// GoBack ends the process with an orderly shutdown, copies its folder, and runs it again for the time after. Then it
// kills the process, and puts the copy in place of the folder.
func (server *Server) GoBack(after time.Duration) error {
	server.end()
	backup := server.folder + ".backup"
	if err := copyFolder(server.folder, backup); err != nil {
		return err
	}
	if err := server.Run(); err != nil {
		return err
	}
	time.Sleep(after)
	server.Kill()
	if err := copyFolder(backup, server.folder); err != nil {
		return err
	}
	return server.Run()
}

// copyFolder puts a copy of a folder in the place of another.
func copyFolder(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if text, err := exec.Command("cp", "-r", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("%s is not copied: %w: %s", from, err, text)
	}
	return nil
}

// Pause stops the process for a while.
func (server *Server) Pause(duration time.Duration) {
	server.Stop()
	time.Sleep(duration)
	server.Continue()
}

// Stop stops the process, as a hypervisor stops a machine.
func (server *Server) Stop() {
	_ = server.process.Process.Signal(syscall.SIGSTOP)
}

// Continue lets a stopped process run on.
func (server *Server) Continue() {
	_ = server.process.Process.Signal(syscall.SIGCONT)
}

// Follow makes the server a replica of the server at this address.
func (server *Server) Follow(master string) error {
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		return err
	}
	_, err = server.Do("REPLICAOF", host, port)
	return err
}

// Follows waits until this replica is linked to its master, and then 2.5 s more: a master tells its replicas about its
// tokens every two seconds.
func (server *Server) Follows() error {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		info, _ := server.Do("INFO", "replication")
		if text, _ := info.(string); strings.Contains(text, "master_link_status:up") {
			time.Sleep(2500 * time.Millisecond)
			return nil
		}
	}
	return errors.New("a replica does not follow its master: see " + filepath.Join(server.folder, "log"))
}

// StepWallClock sets the server's wall clock this number of seconds ahead of the true time.
func (server *Server) StepWallClock(seconds int64) error {
	file, err := os.OpenFile(server.offset, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	bytes := make([]byte, 8)
	for at := range bytes {
		bytes[at] = byte(uint64(seconds) >> (8 * at))
	}
	// The file is written in place, since the server has it mapped into memory.
	_, err = file.WriteAt(bytes, 0)
	return err
}

// BuildShim compiles the shim, the library that replaces the wall clock, into a folder.
func BuildShim(source, folder string) (string, error) {
	shim, err := filepath.Abs(filepath.Join(folder, "wall_clock.so"))
	if err != nil {
		return "", err
	}
	if text, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", shim, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("the shim of the wall clock is not compiled: %w: %s", err, text)
	}
	return shim, nil
}
