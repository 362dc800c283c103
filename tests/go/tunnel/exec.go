package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

func (c *cluster) execOnce(client kubernetes.Interface) operation {
	return func(ctx context.Context, number int) error {
		text := fmt.Sprintf("echo %d", number)
		var output bytes.Buffer
		err := c.exec(ctx, client, strings.Fields(text), remotecommand.StreamOptions{Stdout: &output})
		if err == nil && !strings.Contains(output.String(), text+"\n") {
			err = fmt.Errorf("the output is %q", output.String())
		}
		return err
	}
}

// execLong writes a line to standard input in each period, which comes back from standard output.
func (c *cluster) execLong(client kubernetes.Interface) stream {
	return func(ctx context.Context, line func()) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		reader, writer := io.Pipe()
		// Writes fail once the stream has ended.
		defer reader.Close()
		go func() {
			ticker := time.NewTicker(c.period)
			defer ticker.Stop()
			for number := 1; ; number++ {
				if _, err := fmt.Fprintf(writer, "line %d\n", number); err != nil {
					return
				}
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		}()
		options := remotecommand.StreamOptions{Stdin: reader, Stdout: lineCounter(line)}
		return c.exec(ctx, client, []string{"cat"}, options)
	}
}

// lineCounter calls itself for each line that is written to it.
type lineCounter func()

func (l lineCounter) Write(text []byte) (int, error) {
	for range bytes.Count(text, []byte("\n")) {
		l()
	}
	return len(text), nil
}

// exec takes WebSocket and else SPDY, as kubectl does.
func (c *cluster) exec(ctx context.Context, client kubernetes.Interface, command []string, options remotecommand.StreamOptions) error {
	at := c.podURL(client, "exec", &corev1.PodExecOptions{
		Container: c.container, Command: command, Stdin: options.Stdin != nil, Stdout: true,
	})
	spdy, err := remotecommand.NewSPDYExecutor(c.config, "POST", at)
	if err != nil {
		return err
	}
	webSocket, err := remotecommand.NewWebSocketExecutor(c.config, "GET", at.String())
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(webSocket, spdy, isRefused)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, options)
}

// isRefused is whether kubectl would try SPDY.
func isRefused(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}

// podURL is where a subresource of the Pod is. Options may be nil.
func (c *cluster) podURL(client kubernetes.Interface, subresource string, options *corev1.PodExecOptions) *url.URL {
	request := client.CoreV1().RESTClient().Get().Resource("pods").Namespace(c.namespace).Name(c.pod).SubResource(subresource)
	if options != nil {
		request = request.VersionedParams(options, scheme.ParameterCodec)
	}
	return request.URL()
}
