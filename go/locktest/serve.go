package locktest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// serve answers the commands of one connection, one after the other.
func (s *Server) serve(socket net.Conn) {
	defer socket.Close()
	in := bufio.NewReader(socket)
	for {
		words, err := read(in)
		if err != nil {
			return
		}
		if _, err := io.WriteString(socket, s.answer(words)); err != nil {
			return
		}
	}
}

// read returns the words of a command.
func read(in *bufio.Reader) ([]string, error) {
	count, err := length(in, '*')
	if err != nil {
		return nil, err
	}
	words := make([]string, count)
	for at := range words {
		size, err := length(in, '$')
		if err != nil {
			return nil, err
		}
		bytes := make([]byte, size+2)
		if _, err := io.ReadFull(in, bytes); err != nil {
			return nil, err
		}
		words[at] = string(bytes[:size])
	}
	return words, nil
}

func length(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q is no length of %c", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

const null = "$-1\r\n"

func integer(value int64) string { return fmt.Sprintf(":%d\r\n", value) }

func text(value string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(value), value) }

// answer performs one command.
func (s *Server) answer(words []string) string {
	command := strings.ToUpper(words[0])
	switch command {
	case "PING":
		return "+PONG\r\n"
	case "LOCK.NODE":
		return "*2\r\n" + text("state") + text("serving")
	case "LOCK.INFO":
		return info(s.book.oldest(words[1]))
	case "LOCK.ACQUIRE":
		return s.acquire(words)
	}
	if !strings.HasPrefix(command, "LOCK.") {
		// HELLO too: the client goes on in RESP2.
		return fmt.Sprintf("-ERR unknown command '%s'\r\n", words[0])
	}
	return s.change(command, words)
}

// change performs one command of an owner.
func (s *Server) change(command string, words []string) string {
	key, owner, more := words[1], words[2], words[3:]
	var value int64
	var found bool
	switch command {
	case "LOCK.EXTEND":
		value, found = s.book.extend(key, owner, milliseconds(more[0]))
	case "LOCK.REENTER":
		value, found = s.book.reenter(key, owner, number(more[1]))
	case "LOCK.CONVERT":
		value, found = s.book.convert(key, owner, strings.EqualFold(more[0], "SHARED"))
	case "LOCK.RELEASE":
		value, found = s.book.release(key, owner, number(more[1]))
	case "LOCK.NOTE":
		value, found = s.book.proclaim(key, owner, more[0], int64(number(more[2])))
	default:
		return fmt.Sprintf("-ERR locks in memory have no %s\r\n", command)
	}
	if !found {
		return null
	}
	return integer(value)
}

func (s *Server) acquire(words []string) string {
	asked := request{owner: words[2], ttl: milliseconds(words[3])}
	waits := time.Duration(-1)
	for at := 4; at < len(words); at++ {
		switch words[at] {
		case "SHARED":
			asked.isShared = true
		case "LIMIT":
			at++
			asked.limit = number(words[at])
		case "WAIT":
			at++
			waits = milliseconds(words[at])
		case "NOTE":
			at++
			asked.note = words[at]
		}
	}
	began := time.Now()
	var granted *grant
	if waits < 0 {
		granted = s.book.acquire(words[1], asked)
	} else {
		granted = s.book.wait(words[1], asked, waits)
	}
	if granted == nil {
		return null
	}
	waited := integer(time.Since(began).Milliseconds())
	return "*3\r\n" + integer(granted.token) + waited + integer(int64(granted.number))
}

func info(g *grant) string {
	if g == nil {
		return null
	}
	fields := text("token") + integer(g.token) + text("held") + integer(time.Since(g.since).Milliseconds())
	fields += text("seq") + integer(g.sequence)
	return "*10\r\n" + fields + text("ttl") + integer(time.Until(g.until).Milliseconds()) + text("note") + text(g.note)
}

func number(word string) int {
	value, err := strconv.Atoi(word)
	if err != nil {
		panic(err)
	}
	return value
}

func milliseconds(word string) time.Duration { return time.Duration(number(word)) * time.Millisecond }
