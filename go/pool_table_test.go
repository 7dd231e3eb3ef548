package locks_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// tableWrite writes a step of a job, unless its token is smaller than the largest that the job has seen. It needs no module.
var tableWrite = redis.NewScript(`
local job, token, worker, step = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local row = redis.call('HMGET', job, 'token', 'step')
if tonumber(token) < tonumber(row[1] or 0) then
  redis.call('HINCRBY', 'refused', worker, 1)
  redis.call('HDEL', 'at work', worker)
  return 'refused'
end
if row[2] == 'done' and step == 'begun' then return 'done before' end
redis.call('HSET', job, 'token', token, 'step', step, 'worker', worker)
redis.call('RPUSH', 'journal', table.concat({job, token, worker, step}, ' '))
if step == 'done' then
  redis.call('HDEL', 'at work', worker)
  redis.call('SREM', 'open', job)
else
  redis.call('HSET', 'at work', worker, job)
end
return 'written'`)

// A table has the jobs of a pool, on a server without the module.
type table struct{ data *redis.Client }

func tableAt(url string) *table {
	at, err := redis.ParseURL(url)
	if err != nil {
		panic(err)
	}
	return &table{redis.NewClient(at)}
}

// write writes a step of a job, and reports whether that was done.
func (ta *table) write(job string, token int64, worker, step string) (bool, error) {
	said, err := tableWrite.Run(ctx, ta.data, []string{job}, token, worker, step).Text()
	return said == "written", err
}

// openJob returns a job that is not done, or "". Sometimes it is one that another worker has begun, and may have died at.
func (ta *table) openJob() (string, error) {
	job, err := ta.data.SRandMember(ctx, "open").Result()
	if err == redis.Nil {
		return "", nil
	}
	if begun, err := ta.data.HVals(ctx, "at work").Result(); err == nil && len(begun) > 0 && rand.IntN(5) == 0 {
		return begun[rand.IntN(len(begun))], nil
	}
	return job, err
}

func (ta *table) fill(t *testing.T, jobs int) {
	for number := range jobs {
		if err := ta.data.SAdd(ctx, "open", fmt.Sprint("job-", number)).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func (ta *table) done(t *testing.T) int {
	open, err := ta.data.SCard(ctx, "open").Result()
	if err != nil {
		t.Fatal(err)
	}
	return poolJobs - int(open)
}

// field returns a field of a row, or "".
func (ta *table) field(t *testing.T, row, field string) string {
	value, err := ta.data.HGet(ctx, row, field).Result()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	return value
}

// jobOf returns the job that the worker has begun and not done, or "".
func (ta *table) jobOf(t *testing.T, worker string) string { return ta.field(t, "at work", worker) }

// doneBy returns the worker that did the job, or "".
func (ta *table) doneBy(t *testing.T, job string) string {
	if ta.field(t, job, "step") != "done" {
		return ""
	}
	return ta.field(t, job, "worker")
}

// refused returns how many writes of the worker were refused.
func (ta *table) refused(t *testing.T, worker string) int {
	number, _ := strconv.Atoi(ta.field(t, "refused", worker))
	return number
}

func (ta *table) journal(t *testing.T) []string {
	lines, err := ta.data.LRange(ctx, "journal", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// wrongIn returns what must not be in a journal of this many jobs, whose lines name a job, a token, a worker and a step.
func wrongIn(journal []string, jobs int) (wrong []string) {
	done, last, worker := map[string]int{}, map[string]int64{}, map[string]string{}
	for _, line := range journal {
		words := strings.Fields(line)
		job, by, step := words[0], words[2], words[3]
		token, _ := strconv.ParseInt(words[1], 10, 64)
		done[job] += 0
		switch {
		case token < last[job]:
			wrong = append(wrong, fmt.Sprintf("%s: token %d came after %d", job, token, last[job]))
			continue
		case token == last[job] && step == "begun":
			wrong = append(wrong, fmt.Sprintf("%s was begun twice under token %d", job, token))
		case token == last[job] && by != worker[job]:
			wrong = append(wrong, fmt.Sprintf("%s: %s and %s wrote under token %d", job, worker[job], by, token))
		}
		last[job], worker[job] = token, by
		if step == "done" {
			done[job]++
		}
	}
	for job, times := range done {
		if times != 1 {
			wrong = append(wrong, fmt.Sprintf("%s was done %d times", job, times))
		}
	}
	if len(done) != jobs {
		wrong = append(wrong, fmt.Sprintf("%d jobs, not %d", len(done), jobs))
	}
	return wrong
}
