// Work under a lock that lasts as long as this process: the server renews its lease by itself.
package main

import (
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"
)

func main() {
	holder, err := redis.Dial("tcp", "127.0.0.1:"+os.Getenv("PORT")) // A connection of its own, not one of a Pool.
	if err != nil {
		log.Fatal(err)
	}
	defer holder.Close()
	owner := make([]byte, 16) // New for each acquisition.
	rand.Read(owner)
	token, err := redis.Int64(holder.Do("LOCK.ACQUIRE", "orders:import", owner, 2000, "KEEPALIVE", 3600000))
	if err != nil {
		log.Fatal(err) // redis.ErrNil: somebody else has the lock.
	}
	fmt.Println("token:", token)
	time.Sleep(10 * time.Minute) // The work.
	holder.Do("LOCK.RELEASE", "orders:import", owner, "LEVEL", 1)
}
