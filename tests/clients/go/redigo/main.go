// A lock with redigo: take it, be refused, wait, write under it, give it back, share it.
package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const key, data = "orders:42", "{orders:42}:state" // One hash slot, for the script on a cluster.

// Writes only if the token is that of the lock's current grant.
var guardedSet = redis.NewScript(2, `
if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return redis.call('SET', KEYS[2], ARGV[2]) end
return redis.error_reply('FENCED by a newer grant')`)

var pool = redis.Pool{Dial: func() (redis.Conn, error) {
	port := os.Getenv("PORT")
	if port == "" {
		port = "6379"
	}
	return redis.Dial("tcp", "127.0.0.1:"+port)
}}

// New for each acquisition.
func newOwner() string {
	bytes := make([]byte, 16)
	must(rand.Read(bytes))
	return hex.EncodeToString(bytes)
}

// The words of the error. The first is stable.
func refusal(_ interface{}, err error) []string {
	var refused redis.Error
	if !errors.As(err, &refused) {
		log.Fatalf("not refused: %v", err)
	}
	return strings.Fields(refused.Error())
}

// A lock that was not free in time.
var errHeld = errors.New("somebody else holds the lock")

// withLock calls work with the fencing token of the lock, held for at most ttl, after waiting for at most wait.
func withLock(key string, ttl, wait time.Duration, work func(token int64) error) error {
	owner := newOwner()
	conn := pool.Get() // The wait has this connection for itself.
	defer conn.Close()
	// LEVEL 1 releases all holds, and can be repeated. It also ends a wait that was given up.
	defer func() {
		conn := pool.Get()
		defer conn.Close()
		conn.Do("LOCK.RELEASE", key, owner, "LEVEL", 1)
	}()
	grant, err := redis.Int64s(redis.DoWithTimeout(conn, wait+5*time.Second,
		"LOCK.ACQUIRE", key, owner, ttl.Milliseconds(), "WAIT", wait.Milliseconds(), "RETRY"))
	if errors.Is(err, redis.ErrNil) {
		return errHeld
	} else if err != nil {
		return err
	}
	return work(grant[0])
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	conn := pool.Get()
	defer conn.Close()
	me, you := newOwner(), newOwner()

	token := must(redis.Int64(conn.Do("LOCK.ACQUIRE", key, me, 10000)))
	fmt.Println("acquire:", token)
	fmt.Println("another owner:", must(conn.Do("LOCK.ACQUIRE", key, you, 10000)))
	fmt.Println("again:", refusal(conn.Do("LOCK.ACQUIRE", key, me, 10000))[0])
	fmt.Println("again with RETRY:", must(conn.Do("LOCK.ACQUIRE", key, me, 10000, "RETRY")))
	fmt.Println("reenter:", must(conn.Do("LOCK.REENTER", key, me)))
	fmt.Println("extend:", must(conn.Do("LOCK.EXTEND", key, me, 20000)))

	// The server passes the lock on when it is released: no polling.
	waits := make(chan []int64)
	go func() {
		conn := pool.Get()
		defer conn.Close()
		waits <- must(redis.Int64s(conn.Do("LOCK.ACQUIRE", key, you, 10000, "WAIT", 30000)))
	}()
	time.Sleep(100 * time.Millisecond)
	fmt.Println("release:", must(conn.Do("LOCK.RELEASE", key, me, "LEVEL", 1)))
	grant := <-waits
	fmt.Println("wait:", grant)

	fmt.Println("write with the current token:", must(guardedSet.Do(conn, key, data, grant[0], "paid")))
	fmt.Println("write with the old token:", refusal(guardedSet.Do(conn, key, data, token, "open"))[0])
	must(conn.Do("LOCK.RELEASE", key, you, "LEVEL", 1))

	// Readers hold it together and keep writers out. LIMIT bounds the permits held at a time; each has a number.
	fmt.Println("read:", must(conn.Do("LOCK.ACQUIRE", key, me, 10000, "SHARED")))
	fmt.Println("read as well:", must(conn.Do("LOCK.ACQUIRE", key, you, 10000, "SHARED")))
	fmt.Println("write meanwhile:", must(conn.Do("LOCK.ACQUIRE", key, newOwner(), 10000)))
	for _, reader := range []string{me, you} {
		must(conn.Do("LOCK.RELEASE", key, reader))
	}
	fmt.Println("permit:", must(redis.Int64s(conn.Do("LOCK.ACQUIRE", key, me, 10000, "LIMIT", 2))))
	must(conn.Do("LOCK.RELEASE", key, me))

	// A node that may have forgotten grants refuses, and says for how long. An operator's command shows it here.
	must(conn.Do("LOCK.GUARD", "ARM", 1500))
	words := refusal(conn.Do("LOCK.ACQUIRE", key, me, 10000))
	leftMs := must(strconv.Atoi(words[1]))
	fmt.Printf("guarded: %s, try again in %d ms\n", words[0], leftMs)
	time.Sleep(time.Duration(leftMs) * time.Millisecond)

	var last int64
	err := withLock(key, 10*time.Second, 30*time.Second, func(token int64) error {
		last = token
		fmt.Println("lock:", token)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("after it:", must(conn.Do("LOCK.CHECK", key, last)))
}
