package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

const (
	// followPeriod is the time between two lines of a log that a client follows.
	followPeriod = 250 * time.Millisecond
	// streamIdleTimeout is the default of the kubelet's streamingConnectionIdleTimeout.
	streamIdleTimeout = 4 * time.Hour
)

// node answers for all Pods of one node. It has no list of Pods: kube-apiserver calls only for Pods that it knows.
type node struct{ name string }

func nodeHandler(name string) http.Handler {
	n := &node{name}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.logs)
	// SPDY upgrades with POST and WebSocket with GET.
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", n.exec)
	mux.HandleFunc("/portForward/{namespace}/{pod}", n.portForward)
	return mux
}

// logs writes one line, or one each followPeriod until the client goes.
func (n *node) logs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	line := func(number int) bool {
		_, err := fmt.Fprintf(w, "%s %s/%s line %d\n", n.name, r.PathValue("namespace"), r.PathValue("pod"), number)
		return err == nil && http.NewResponseController(w).Flush() == nil
	}
	if r.FormValue("follow") != "true" {
		line(1)
		return
	}
	ticker := time.NewTicker(followPeriod)
	defer ticker.Stop()
	for number := 1; line(number); number++ {
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}

func (n *node) exec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, n, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"], options,
		streamIdleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (n *node) portForward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, n, r.PathValue("pod"), "", options,
		streamIdleTimeout, remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
}

// ExecInContainer writes the node's name and the command, and then copies standard input until it ends. It runs no process.
func (n *node) ExecInContainer(_ context.Context, _, _, _ string, command []string, in io.Reader, out, _ io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if out == nil {
		out = discard{io.Discard}
	}
	if _, err := fmt.Fprintf(out, "%s %s\n", n.name, strings.Join(command, " ")); err != nil || in == nil {
		return err
	}
	_, err := io.Copy(out, in)
	return err
}

// PortForward sends back what it gets.
func (n *node) PortForward(_ context.Context, _, _ string, _ int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	_, err := io.Copy(stream, stream)
	return err
}

type discard struct{ io.Writer }

func (discard) Close() error { return nil }
