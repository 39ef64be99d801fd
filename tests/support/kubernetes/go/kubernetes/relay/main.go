// Command relay hands the connections that come to one place on to another:
//
//	relay fd:3 unix:/run/api.sock
//	relay unix:/run/api.sock tcp:127.0.0.1:6443
//
// Sockets in the file system are seen from every network: two relays lead from one network into another.
package main

import (
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
)

func listen(kind, place string) (net.Listener, error) {
	if kind != "fd" {
		return net.Listen(kind, place)
	}
	number, err := strconv.Atoi(place)
	if err != nil {
		return nil, err
	}
	return net.FileListener(os.NewFile(uintptr(number), place))
}

type half interface {
	net.Conn
	CloseWrite() error
}

// pass copies one direction, and then says that no more will come.
func pass(from, to half, done chan<- struct{}) {
	io.Copy(to, from)
	to.CloseWrite()
	done <- struct{}{}
}

func serve(caller half, kind, place string) {
	defer caller.Close()
	called, err := net.Dial(kind, place)
	if err != nil {
		return
	}
	defer called.Close()
	done := make(chan struct{}, 2)
	go pass(caller, called.(half), done)
	go pass(called.(half), caller, done)
	<-done
	<-done
}

func main() {
	kind, place, _ := strings.Cut(os.Args[1], ":")
	toKind, toPlace, _ := strings.Cut(os.Args[2], ":")
	listener, err := listen(kind, place)
	if err != nil {
		log.Fatal(err)
	}
	for {
		caller, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(caller.(half), toKind, toPlace)
	}
}
