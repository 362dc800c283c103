package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialWith resolves names at one DNS server alone, without a cache, and goes to the addresses that stand for others: "10.77=127.77"
// says that those which begin with 10.77 are reached at 127.77.
func dialWith(server, translation string, deadline time.Duration) dialFunc {
	var dialer net.Dialer
	ask := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, server)
	}
	resolver := &net.Resolver{PreferGo: true, Dial: ask}
	from, to, _ := strings.Cut(translation, "=")
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		// Transports go on to dial after the request has ended.
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		found, err := resolver.LookupHost(ctx, host)
		if err != nil {
			return nil, err
		}
		for _, ip := range found {
			if rest, is := strings.CutPrefix(ip, from+"."); is && from != "" {
				ip = to + "." + rest
			}
			var connection net.Conn
			if connection, err = dialer.DialContext(ctx, network, net.JoinHostPort(ip, port)); err == nil {
				return connection, nil
			}
		}
		return nil, err
	}
}

// startProxy serves CONNECT on loopback. client-go's connections for WebSocket and SPDY ignore the dialer of a configuration, but
// they heed its proxy.
func startProxy(dial dialFunc) (func(*http.Request) (*url.URL, error), error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(client, dial)
		}
	}()
	return http.ProxyURL(&url.URL{Scheme: "http", Host: listener.Addr().String()}), nil
}

// forward copies between a client and the server that it asks for, and closes both when either ends, because connections of TLS are
// not closed by halves.
func forward(client net.Conn, dial dialFunc) {
	defer client.Close()
	input := bufio.NewReader(client)
	request, err := http.ReadRequest(input)
	if err != nil {
		return
	}
	server, err := dial(context.Background(), "tcp", request.Host)
	if err != nil {
		// Clients show the status line as the error.
		fmt.Fprintf(client, "HTTP/1.1 502 %s\r\nContent-Length: 0\r\n\r\n", strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		server.Close()
		return
	}
	var copies sync.WaitGroup
	copyAndClose := func(to net.Conn, from io.Reader) {
		_, _ = io.Copy(to, from)
		client.Close()
		server.Close()
	}
	copies.Go(func() { copyAndClose(server, input) })
	copies.Go(func() { copyAndClose(client, server) })
	copies.Wait()
}
