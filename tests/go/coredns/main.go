// CoreDNS with the plugins that a cluster's DNS has for names outside of it, and no others.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
)

// The order in which plugins see a question.
func main() {
	dnsserver.Directives = []string{"bind", "errors", "cache", "forward"}
	coremain.Run()
}
