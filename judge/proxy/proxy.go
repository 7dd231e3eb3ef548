// Package proxy has a proxy between clients and a server that can cut connections or delay bytes.
package proxy

import (
	"net"
	"sync"
	"time"
)

// Proxy passes bytes on between its own address and a server.
type Proxy struct {
	listener net.Listener
	mutex    sync.Mutex
	to       string
	open     map[net.Conn]bool
	held     chan struct{} // closed when bytes may pass
	delayed  int           // how often bytes had to wait
}

// Start listens on a free port.
func Start(to string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	held := make(chan struct{})
	close(held)
	proxy := &Proxy{listener: listener, to: to, open: map[net.Conn]bool{}, held: held}
	go proxy.accept()
	return proxy, nil
}

// Address is the address to which clients connect.
func (proxy *Proxy) Address() string {
	return proxy.listener.Addr().String()
}

// Stop ends the proxy and all connections.
func (proxy *Proxy) Stop() {
	proxy.listener.Close()
	proxy.Cut()
}

// Cut ends all connections. Bytes under way may have arrived or not. It returns whether there were any connections.
func (proxy *Proxy) Cut() bool {
	proxy.mutex.Lock()
	defer proxy.mutex.Unlock()
	for conn := range proxy.open {
		conn.Close()
	}
	return len(proxy.open) > 0
}

// Retarget makes new connections lead to another server.
func (proxy *Proxy) Retarget(to string) {
	proxy.mutex.Lock()
	proxy.to = to
	proxy.mutex.Unlock()
	proxy.Cut()
}

// Hold lets nothing pass in either direction for a while. Then everything arrives late. It returns whether anything had
// to wait.
func (proxy *Proxy) Hold(duration time.Duration) bool {
	held := make(chan struct{})
	proxy.mutex.Lock()
	proxy.held = held
	before := proxy.delayed
	proxy.mutex.Unlock()
	time.Sleep(duration)
	close(held)
	proxy.mutex.Lock()
	defer proxy.mutex.Unlock()
	return proxy.delayed > before
}

// wait returns once bytes may pass.
func (proxy *Proxy) wait() {
	proxy.mutex.Lock()
	held := proxy.held
	select {
	case <-held:
	default:
		proxy.delayed++
	}
	proxy.mutex.Unlock()
	<-held
}

func (proxy *Proxy) accept() {
	for {
		client, err := proxy.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			proxy.mutex.Lock()
			to := proxy.to
			proxy.mutex.Unlock()
			server, err := net.DialTimeout("tcp", to, time.Second)
			if err != nil {
				client.Close()
				return
			}
			proxy.remember(client, server)
			go proxy.pass(client, server)
			proxy.pass(server, client)
		}()
	}
}

func (proxy *Proxy) remember(conns ...net.Conn) {
	proxy.mutex.Lock()
	defer proxy.mutex.Unlock()
	for _, conn := range conns {
		proxy.open[conn] = true
	}
}

// pass copies bytes until one side ends the connection. Then it ends both connections.
func (proxy *Proxy) pass(from, to net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		size, err := from.Read(buffer)
		if size > 0 {
			proxy.wait()
			_, failed := to.Write(buffer[:size])
			if err == nil {
				err = failed
			}
		}
		if err != nil {
			break
		}
	}
	proxy.mutex.Lock()
	defer proxy.mutex.Unlock()
	for _, conn := range []net.Conn{from, to} {
		conn.Close()
		delete(proxy.open, conn)
	}
}
