package main

import (
	"context"
	"net"
	"strings"
)

// dialWith resolves names at one DNS server alone, without a cache, and goes to the addresses that stand for others: "10.77=127.77"
// says that those which begin with 10.77 are reached at 127.77.
func dialWith(server, translation string) func(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	ask := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, server)
	}
	resolver := &net.Resolver{PreferGo: true, Dial: ask}
	from, to, _ := strings.Cut(translation, "=")
	return func(ctx context.Context, network, address string) (net.Conn, error) {
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
