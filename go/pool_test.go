package locks_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"
)

// A pool of worker processes does jobs under locks of an agent with five nodes, and writes to a table that remembers the
// largest token of each job. Meanwhile workers are killed, or stopped for longer than their leases, and two nodes are killed.

const (
	poolJobs    = 500
	poolWorkers = 6
	poolTTL     = time.Second
	jobTakes    = 50 * time.Millisecond
	// The environment of a worker: its name, and the addresses of the locks and of the table.
	workerVariable = "PALISADE_POOL_WORKER"
	locksVariable  = "PALISADE_POOL_LOCKS"
	tableVariable  = "PALISADE_POOL_TABLE"
)

// workIn does jobs until none is open, as a worker of its own process, and returns its exit status.
func workIn(worker string) int {
	client, err := locks.Open(os.Getenv(locksVariable), locks.TTL(poolTTL), locks.Note(worker), locks.AnswerWithin(20*time.Second))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer client.Close()
	table := tableAt(os.Getenv(tableVariable))
	defer table.data.Close()
	for {
		job, err := table.openJob()
		if err == nil && job == "" {
			return 0
		}
		if err == nil {
			err = doJob(client, table, job, worker)
		}
		if err != nil && !isExpected(err) {
			fmt.Fprintln(os.Stderr, worker, err)
			return 1
		}
	}
}

// isExpected reports whether the lock was not free in time, or was lost, or its release was sent to a node that was killed.
func isExpected(err error) bool {
	return errors.Is(err, locks.ErrNotAcquired) || errors.Is(err, locks.ErrLost) || errors.Is(err, locks.ErrUnknown)
}

func doJob(client *locks.Client, table *table, job, worker string) error {
	lock, err := client.Lock(ctx, job, locks.Wait(2*poolTTL))
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx)
	written, err := table.write(job, lock.Token(), worker, "begun")
	if err != nil || !written {
		return err
	}
	time.Sleep(jobTakes)
	// A worker that is stopped right here does not know it: only the table can refuse what it writes then.
	if _, err := table.write(job, lock.Token(), worker, "done"); err != nil {
		return err
	}
	return lock.Unlock(ctx)
}

// A pool has the processes of the workers.
type pool struct {
	t       *testing.T
	agent   *servers.Server
	table   *table
	address string
	workers map[string]*exec.Cmd
	stopped map[string]bool
	started int
}

func (p *pool) start() {
	p.started++
	name := fmt.Sprint("worker-", p.started)
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), workerVariable+"="+name, locksVariable+"="+p.agent.URL, tableVariable+"="+p.address)
	worker.Stderr = os.Stderr
	worker.SysProcAttr = servers.EndsWithParent()
	if err := worker.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.workers[name] = worker
}

func (p *pool) awaitDone(jobs int) {
	p.t.Helper()
	servers.Eventually(p.t, fmt.Sprint(jobs, " jobs are done"), func() bool { return p.table.done(p.t) >= jobs })
}

// stopAtWork stops workers in the middle of a job, and waits until others have done their jobs: their leases are over then.
func (p *pool) stopAtWork(number int) (late []string) {
	p.t.Helper()
	for len(late) < number {
		jobs := map[string]string{}
		for len(late)+len(jobs) < number {
			name, job := p.stopOne()
			jobs[name] = job
		}
		for name, job := range jobs {
			if p.isTakenOver(job, name) {
				late = append(late, name)
			} else {
				p.goOn(name)
			}
		}
	}
	return late
}

// stopOne stops a worker in the middle of a job.
func (p *pool) stopOne() (name, job string) {
	p.t.Helper()
	servers.Eventually(p.t, "a worker is at work", func() bool {
		for name = range p.workers {
			if p.stopped[name] {
				continue
			}
			p.signal(name, syscall.SIGSTOP)
			p.stopped[name] = true
			if job = p.table.jobOf(p.t, name); job != "" {
				return true
			}
			p.goOn(name)
		}
		return false
	})
	return name, job
}

func (p *pool) goOn(name string) {
	p.signal(name, syscall.SIGCONT)
	delete(p.stopped, name)
}

// isTakenOver waits until the job is done, and reports whether another worker did it. The last write of the stopped one may
// have been on its way.
func (p *pool) isTakenOver(job, worker string) bool {
	by := ""
	servers.Eventually(p.t, job+" is done", func() bool {
		by = p.table.doneBy(p.t, job)
		return by != ""
	})
	return by != worker
}

func (p *pool) signal(name string, signal syscall.Signal) {
	if err := p.workers[name].Process.Signal(signal); err != nil {
		p.t.Fatal(name, " has ended: ", err)
	}
}

// kill ends a worker as `kill -9` does.
func (p *pool) kill(name string) {
	p.signal(name, syscall.SIGKILL)
	p.workers[name].Wait()
	delete(p.workers, name)
}

func TestAPoolOfWorkersDoesEachJobOnce(t *testing.T) {
	agent, data := servers.Agent(t), servers.Bare(t)
	p := &pool{
		t: t, agent: agent, address: data.URL, table: tableAt(data.URL), workers: map[string]*exec.Cmd{}, stopped: map[string]bool{},
	}
	t.Cleanup(func() {
		for name := range p.workers {
			p.kill(name)
		}
		p.table.data.Close()
	})
	p.table.fill(t, poolJobs)
	for range poolWorkers {
		p.start()
	}

	p.awaitDone(poolJobs / 10)
	p.kill(p.stopAtWork(1)[0])
	p.start()
	late := p.stopAtWork(2)

	p.awaitDone(poolJobs / 2)
	agent.Nodes[1].Kill()
	agent.Nodes[4].Kill()
	for _, name := range late {
		p.goOn(name)
		servers.Eventually(t, "the late write of "+name+" is refused", func() bool { return p.table.refused(t, name) > 0 })
	}

	p.awaitDone(poolJobs * 2 / 3)
	p.kill(p.stopAtWork(1)[0])
	p.start()

	p.awaitDone(poolJobs)
	for name, worker := range p.workers {
		if err := worker.Wait(); err != nil {
			t.Error(name, err)
		}
		delete(p.workers, name)
	}
	if wrong := wrongIn(p.table.journal(t), poolJobs); len(wrong) > 0 {
		t.Fatal(strings.Join(wrong, "\n"))
	}
}

func TestTheJournalOfAPoolShowsWhatIsWrong(t *testing.T) {
	for _, one := range []struct{ journal, wrong string }{
		{"job-1 5 a begun, job-1 5 a done", ""},
		{"job-1 5 a begun, job-1 6 b begun, job-1 6 b done", ""},
		{"job-1 5 a begun, job-1 7 a done", ""},
		{"job-1 5 a begun", "job-1 was done 0 times"},
		{"job-1 5 a begun, job-1 5 a done, job-1 6 b done", "job-1 was done 2 times"},
		{"job-1 5 a begun, job-1 5 b begun, job-1 5 b done", "job-1 was begun twice under token 5"},
		{"job-1 5 a begun, job-1 5 a begun, job-1 5 a done", "job-1 was begun twice under token 5"},
		{"job-1 6 a begun, job-1 5 b begun, job-1 6 a done", "job-1: token 5 came after 6"},
		{"job-1 6 a begun, job-1 6 b done", "job-1: a and b wrote under token 6"},
	} {
		if wrong := strings.Join(wrongIn(strings.Split(one.journal, ", "), 1), "\n"); wrong != one.wrong {
			t.Errorf("%s: %q, not %q", one.journal, wrong, one.wrong)
		}
	}
}
