package resp

import (
	"bufio"
	"net"
	"reflect"
	"testing"
	"time"
)

// serve answers each request with these bytes.
func serve(t *testing.T, answer string) *Conn {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = bufio.NewReader(conn).ReadString('\n')
		_, _ = conn.Write([]byte(answer))
	}()
	conn, err := Dial(listener.Addr().String(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func TestAnswersAreUnderstood(t *testing.T) {
	for bytes, answer := range map[string]interface{}{
		"+OK\r\n":                             "OK",
		":7\r\n":                              int64(7),
		"$-1\r\n":                             Null{},
		"*-1\r\n":                             Null{},
		"$3\r\na\r\r\n":                       nil,
		"$2\r\nab\r\n":                        "ab",
		"-GUARDED 5 why\r\n":                  Error("GUARDED 5 why"),
		"*3\r\n:1\r\n$1\r\na\r\n*1\r\n:2\r\n": []interface{}{int64(1), "a", []interface{}{int64(2)}},
		"%1\r\n":                              nil,
	} {
		got, err := serve(t, bytes).Do(time.Second, "PING")
		if answer == nil {
			if err == nil {
				t.Errorf("%q is %v, and should be an error", bytes, got)
			}
		} else if err != nil || !reflect.DeepEqual(got, answer) {
			t.Errorf("%q is %v, not %v (%v)", bytes, got, answer, err)
		}
	}
}

func TestTheCodeOfAnErrorIsItsFirstWord(t *testing.T) {
	if code := Error("GUARDED 5 why").Code(); code != "GUARDED" {
		t.Error(code)
	}
}
