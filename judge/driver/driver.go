// Package driver runs a client library in a process of its own, with a driver as in conformance/README.md. Requests and
// answers are lines of JSON.
package driver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// ErrNoAnswer is the error for requests whose process ended or was too slow. Nobody knows whether they were carried
// out.
var ErrNoAnswer = errors.New("the driver did not answer")

// ErrNotOpen is the error for requests that were not sent, because the process is not running.
var ErrNotOpen = errors.New("the driver does not run")

// Answer is what a driver answered.
type Answer struct {
	ID       int     `json:"id"`
	Error    string  `json:"error"`
	Token    int64   `json:"token"`
	Term     int64   `json:"term"`
	Number   int     `json:"number"`
	ValidFor float64 `json:"valid_for_ms"`
	Valid    bool    `json:"valid"`
	WasHeld  *bool   `json:"was_held"`
}

// Driver is a running process with a client library.
type Driver struct {
	command []string
	open    map[string]interface{} // the first request of each process

	mutex    sync.Mutex
	process  *exec.Cmd
	requests io.Writer
	waiting  map[int]chan Answer
	last     int
	isOpen   bool
}

// Start starts a driver. Its library connects to these addresses.
func Start(command []string, addresses string) (*Driver, error) {
	driver := &Driver{command: command, open: map[string]interface{}{"do": "open", "address": addresses}}
	return driver, driver.Run()
}

// Run starts the process again after the last one has ended.
func (driver *Driver) Run() error {
	process := exec.Command(driver.command[0], driver.command[1:]...)
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	requests, err := process.StdinPipe()
	if err != nil {
		return err
	}
	answers, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return fmt.Errorf("%s does not start: %w: conformance/README.md says what drivers need", driver.command, err)
	}
	waiting := map[int]chan Answer{}
	driver.mutex.Lock()
	driver.process, driver.requests, driver.waiting = process, requests, waiting
	driver.mutex.Unlock()
	go driver.listen(answers, waiting)
	answer, err := driver.send(driver.open, 20*time.Second)
	if err == nil && answer.Error != "" {
		err = fmt.Errorf("%s does not open: %s", driver.command, answer.Error)
	}
	driver.mutex.Lock()
	driver.isOpen = err == nil
	driver.mutex.Unlock()
	return err
}

// listen passes each answer to the request that waits for it, until the process ends.
func (driver *Driver) listen(answers io.Reader, waiting map[int]chan Answer) {
	lines := bufio.NewScanner(answers)
	for lines.Scan() {
		var answer Answer
		if json.Unmarshal(lines.Bytes(), &answer) != nil {
			continue
		}
		driver.mutex.Lock()
		if channel := waiting[answer.ID]; channel != nil {
			channel <- answer
			delete(waiting, answer.ID)
		}
		driver.mutex.Unlock()
	}
	driver.mutex.Lock()
	defer driver.mutex.Unlock()
	for id, channel := range waiting {
		close(channel)
		delete(waiting, id)
	}
}

// Ask sends a request, and waits for its answer. If the process has not started yet, it sends nothing and returns
// ErrNotOpen.
func (driver *Driver) Ask(request map[string]interface{}, within time.Duration) (Answer, error) {
	driver.mutex.Lock()
	isOpen := driver.isOpen
	driver.mutex.Unlock()
	if !isOpen {
		return Answer{}, ErrNotOpen
	}
	return driver.send(request, within)
}

func (driver *Driver) send(request map[string]interface{}, within time.Duration) (Answer, error) {
	channel := make(chan Answer, 1)
	driver.mutex.Lock()
	driver.last++
	request["id"] = driver.last
	driver.waiting[driver.last] = channel
	line, err := json.Marshal(request)
	if err == nil {
		_, err = driver.requests.Write(append(line, '\n'))
	}
	driver.mutex.Unlock()
	if err != nil {
		return Answer{}, ErrNoAnswer
	}
	select {
	case answer, answered := <-channel:
		if answered {
			return answer, nil
		}
	case <-time.After(within):
	}
	return Answer{}, ErrNoAnswer
}

// Kill ends the process as kill -9 does.
func (driver *Driver) Kill() {
	driver.mutex.Lock()
	driver.isOpen = false
	driver.mutex.Unlock()
	_ = driver.process.Process.Kill()
	_ = driver.process.Wait()
}

// Pause stops the process for a while.
func (driver *Driver) Pause(duration time.Duration) {
	_ = driver.process.Process.Signal(syscall.SIGSTOP)
	time.Sleep(duration)
	_ = driver.process.Process.Signal(syscall.SIGCONT)
}
