package servers

import (
	"bytes"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// A Way is a proxy between clients and a server. It delays requests and answers, loses answers, or refuses requests.
type Way struct {
	URL string

	mu           sync.Mutex
	sockets      []net.Conn
	heldRequests string
	heldAnswers  string
	lostAnswer   string
	refused      string
	refusal      string
	held         []func()
	lost         int
	sent         map[string]int
}

// WayTo starts a proxy before the server.
func WayTo(t testing.TB, server *Server) *Way {
	t.Helper()
	path := filepath.Join(short(t), "way.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	w := &Way{URL: "unix://" + path, sent: map[string]int{}}
	t.Cleanup(func() {
		listener.Close()
		w.Cut()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			w.pass(client, server.Path)
		}
	}()
	return w
}

// HoldRequests holds up requests with this word, and what follows them on their connection.
func (w *Way) HoldRequests(word string) { w.set(func() { w.heldRequests = word }) }

// HoldAnswers holds up the answers to requests with this word, and what follows them on their connection.
func (w *Way) HoldAnswers(word string) { w.set(func() { w.heldAnswers = word }) }

// LoseAnswer passes on the next request with this word, loses its answer, and breaks its connection.
func (w *Way) LoseAnswer(word string) { w.set(func() { w.lostAnswer = word }) }

// Refuse answers requests with this word by an error, and does not pass them on; "" ends that.
func (w *Way) Refuse(word, refusal string) { w.set(func() { w.refused, w.refusal = word, refusal }) }

func (w *Way) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// Held returns the number of requests and answers that are held up.
func (w *Way) Held() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

// Lost returns how many answers were lost.
func (w *Way) Lost() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// Sent returns how often a request with this word has come by.
func (w *Way) Sent(word string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent[word]
}

// Count begins to count requests with this word.
func (w *Way) Count(word string) { w.set(func() { w.sent[word] = 0 }) }

// LetGo passes on what was held up, and whatever comes later.
func (w *Way) LetGo() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heldRequests, w.heldAnswers = "", ""
	for _, pass := range w.held {
		pass()
	}
	w.held = nil
}

// Cut ends all connections.
func (w *Way) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, socket := range w.sockets {
		socket.Close()
	}
	w.sockets = nil
}

func (w *Way) pass(client net.Conn, path string) {
	server, err := net.Dial("unix", path)
	if err != nil {
		client.Close()
		return
	}
	p := &passage{way: w, client: client, server: server}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sockets = append(w.sockets, client, server)
	go p.copy(client, p.request, func() {
		// What is held up reaches the server even if the client has gone.
		if p.requestsHeld {
			w.held = append(w.held, func() { server.Close() })
		} else {
			server.Close()
		}
	})
	go p.copy(server, p.answer, func() { client.Close() })
}

// A passage is one connection on the way; the way's mutex guards it.
type passage struct {
	way                       *Way
	client, server            net.Conn
	requestsHeld, answersHeld bool
	answerLost                bool
}

func (p *passage) copy(from net.Conn, pass func([]byte), end func()) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.way.mu.Lock()
		if err != nil {
			end()
			p.way.mu.Unlock()
			return
		}
		pass(bytes.Clone(buffer[:n]))
		p.way.mu.Unlock()
	}
}

func (p *passage) request(data []byte) {
	w := p.way
	has := func(word string) bool { return word != "" && bytes.Contains(bytes.ToUpper(data), []byte(word)) }
	for word := range w.sent {
		if has(word) {
			w.sent[word]++
		}
	}
	if has(w.refused) {
		p.client.Write([]byte("-" + w.refusal + "\r\n"))
		return
	}
	if has(w.lostAnswer) {
		w.lostAnswer, p.answerLost = "", true
	}
	p.answersHeld = p.answersHeld || has(w.heldAnswers)
	p.requestsHeld = p.requestsHeld || has(w.heldRequests)
	if !p.requestsHeld {
		p.server.Write(data)
		return
	}
	w.held = append(w.held, func() {
		p.requestsHeld = false
		p.server.Write(data)
	})
}

func (p *passage) answer(data []byte) {
	switch {
	case p.answerLost:
		p.way.lost++
		p.client.Close()
	case p.answersHeld:
		p.way.held = append(p.way.held, func() {
			p.answersHeld = false
			p.client.Write(data)
		})
	default:
		p.client.Write(data)
	}
}
