// Command kubelet serves what kube-apiserver calls on a node and in its Pods, for clusters whose nodes run no containers.
//
// Usage:
//
//	kubelet --name NODE --listen IP:10250 --tls-cert FILE --tls-key FILE --client-ca FILE
//	kubelet --name NODE --webhook-listen IP:PORT --webhook-cert FILE --webhook-key FILE
//
// The first form serves logs, exec and port-forward for any Pod, with the streaming code of Kubernetes. Clients need a certificate
// of the client CA, which signs kube-apiserver's --kubelet-client-certificate. The second form serves an admission webhook and an
// aggregated API. One process serves both when it gets the flags of both. It prints "ready" when it listens.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	err := run(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "kubelet:", err)
	os.Exit(1)
}

// listenFlags say where and with which certificate one server listens.
type listenFlags struct{ address, cert, key string }

func run(args []string) error {
	flags := flag.NewFlagSet("kubelet", flag.ContinueOnError)
	name := flags.String("name", "", "name of the node")
	clientCA := flags.String("client-ca", "", "file with the CA certificates that sign certificates of clients of --listen")
	var node, webhook listenFlags
	flags.StringVar(&node.address, "listen", "", "address of the kubelet's server; empty for none")
	flags.StringVar(&node.cert, "tls-cert", "", "file with its certificate")
	flags.StringVar(&node.key, "tls-key", "", "file with its private key")
	flags.StringVar(&webhook.address, "webhook-listen", "", "address of the webhook and the aggregated API; empty for none")
	flags.StringVar(&webhook.cert, "webhook-cert", "", "file with their certificate")
	flags.StringVar(&webhook.key, "webhook-key", "", "file with their private key")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *name == "" {
		return errors.New("--name is required")
	}
	if node.address == "" && webhook.address == "" {
		return errors.New("--listen or --webhook-listen is required")
	}
	failed := make(chan error)
	if node.address != "" {
		clients, err := clientsOf(*clientCA)
		if err != nil {
			return err
		}
		if err := serve(node, clients, nodeHandler(*name), failed); err != nil {
			return err
		}
	}
	if webhook.address != "" {
		if err := serve(webhook, &tls.Config{}, webhookHandler(), failed); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	return <-failed
}

// clientsOf is a configuration that refuses clients without a certificate of a CA in the file.
func clientsOf(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("failed to read --client-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--client-ca %s has no certificate", file)
	}
	return &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}, nil
}

// serve listens, and serves in the background until that fails. Requests have no deadline, because streams are long.
func serve(at listenFlags, config *tls.Config, handler http.Handler, failed chan<- error) error {
	pair, err := tls.LoadX509KeyPair(at.cert, at.key)
	if err != nil {
		return fmt.Errorf("failed to load the certificate for %s: %w", at.address, err)
	}
	config.Certificates = []tls.Certificate{pair}
	listener, err := net.Listen("tcp", at.address)
	if err != nil {
		return fmt.Errorf("failed to listen: %w", err)
	}
	server := http.Server{
		Handler: handler, TLSConfig: config,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 1 << 20,
	}
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	return nil
}
