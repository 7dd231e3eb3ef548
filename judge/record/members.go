package record

import (
	"fmt"
	"math/rand"
	"os/exec"
	"strings"
	"time"

	"palisade/judge/proxy"
)

// setChanges is the name of the fault that changes the set of nodes.
const setChanges = "members"

// spares is the number of nodes that are not in the set.
func (run *recording) spares() int {
	if run.settings.Plan.Spare {
		return 1
	}
	return 0
}

// setMembers makes a set of all nodes but one. It names the nodes in known to the program, which finds the present set
// through them. It returns the reason if the set was not changed.
func (run *recording) setMembers(without int, known []*proxy.Proxy) error {
	var list []string
	for _, before := range known {
		list = append(list, before.Address())
	}
	words := []string{"--nodes", strings.Join(list, ","), "members", "set", "--yes"}
	for number, before := range run.proxies {
		if number != without {
			words = append(words, before.Address())
		}
	}
	if text, err := exec.Command(run.settings.Agent, words...).CombinedOutput(); err != nil {
		return fmt.Errorf("the set is not changed: %w: %s", err, text)
	}
	return nil
}

// found makes a set of all nodes but the last, before any client asks them.
func (run *recording) found() error {
	last := len(run.proxies) - 1
	return run.setMembers(last, run.proxies[:last])
}

// changeMembers replaces one node of the set by the spare node, again and again. A change may fail while nodes are
// broken: the next change completes it.
func (run *recording) changeMembers(random *rand.Rand) error {
	spare, done := len(run.proxies)-1, 0
	for time.Now().Add(time.Second).Before(run.end) {
		time.Sleep(time.Duration(random.Intn(1000)) * time.Millisecond)
		begun, next := Now(), (spare+1+random.Intn(len(run.proxies)-1))%len(run.proxies)
		if run.setMembers(next, run.proxies) == nil {
			spare = next
			done++
			run.note(begun, fmt.Sprintf("node %d leaves the set", next+1), setChanges)
		}
	}
	if done == 0 {
		return fmt.Errorf("the set was never changed")
	}
	return nil
}
