// Package resp speaks the protocol of Redis over a connection: one request, then its answer. It never sends a request
// twice.
package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const longestText = 64 << 20

// Null is the answer Null.
type Null struct{}

// Error is an error with which the server answered.
type Error string

// Code is the first word of the error.
func (answer Error) Code() string {
	return strings.SplitN(string(answer), " ", 2)[0]
}

// Conn is a connection. After an error it cannot be used any more.
type Conn struct {
	conn   net.Conn
	reader *bufio.Reader
}

// Dial opens a connection.
func Dial(address string, within time.Duration) (*Conn, error) {
	conn, err := net.DialTimeout("tcp", address, within)
	if err != nil {
		return nil, err
	}
	return &Conn{conn, bufio.NewReader(conn)}, nil
}

// Close ends the connection.
func (conn *Conn) Close() {
	conn.conn.Close()
}

// Do sends a request and returns its answer: an int64, a string, Null, an Error, or a list of these. If it returns an
// error, nobody knows whether the server carried out the request.
func (conn *Conn) Do(within time.Duration, words ...string) (interface{}, error) {
	if err := conn.conn.SetDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn.conn, request.String()); err != nil {
		return nil, err
	}
	return conn.read()
}

func (conn *Conn) read() (interface{}, error) {
	line, err := conn.reader.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("the server answered an empty line: is it a Redis server?")
	}
	switch rest := line[1:]; line[0] {
	case '+':
		return rest, nil
	case '-':
		return Error(rest), nil
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$':
		return conn.readText(rest)
	case '*':
		return conn.readList(rest)
	}
	return nil, fmt.Errorf("the server answered %q: this client knows RESP2 alone", line)
}

func (conn *Conn) readText(length string) (interface{}, error) {
	size, err := strconv.Atoi(length)
	if err != nil || size > longestText {
		return nil, fmt.Errorf("the server answered a text of length %q", length)
	}
	if size < 0 {
		return Null{}, nil
	}
	text := make([]byte, size+2)
	if _, err := io.ReadFull(conn.reader, text); err != nil {
		return nil, err
	}
	return string(text[:size]), nil
}

func (conn *Conn) readList(length string) (interface{}, error) {
	size, err := strconv.Atoi(length)
	if err != nil || size > longestText {
		return nil, fmt.Errorf("the server answered a list of length %q", length)
	}
	if size < 0 {
		return Null{}, nil
	}
	list := make([]interface{}, size)
	for at := range list {
		if list[at], err = conn.read(); err != nil {
			return nil, err
		}
	}
	return list, nil
}
