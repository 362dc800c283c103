package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/transport/websocket"
	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"
)

const (
	// tunnelingProtocol is kubectl's protocol for SPDY over WebSocket.
	tunnelingProtocol = "SPDY/3.1+" + portforward.PortForwardProtocolV1Name
	pingPeriod        = 5 * time.Second
	forwardedPort     = "80"
)

// forwardOnce sends a line to a port of the Pod and expects the same line back.
func (c *cluster) forwardOnce(client kubernetes.Interface) operation {
	return func(ctx context.Context, number int) error {
		connection, err := c.openForward(ctx, c.podURL(client, "portforward", nil))
		if err != nil {
			return err
		}
		defer connection.Close()
		done := make(chan error, 1)
		go func() { done <- echo(connection, fmt.Sprintf("echo %d\n", number)) }()
		// A stream waits for ever after its connection has broken.
		select {
		case err := <-done:
			return err
		case <-connection.CloseChan():
			return errors.New("the connection broke")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// openForward takes WebSocket and else SPDY, as kubectl does, but heeds the context, for which client-go's dialers have no parameter.
func (c *cluster) openForward(ctx context.Context, at *url.URL) (httpstream.Connection, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	transport, holder, err := websocket.RoundTripperFor(c.config)
	if err != nil {
		return nil, err
	}
	connection, err := websocket.Negotiate(transport, holder, request, tunnelingProtocol)
	if err == nil {
		return streamspdy.NewClientConnectionWithPings(portforward.NewTunnelingConnection("client", connection), pingPeriod)
	}
	if !isRefused(err) {
		return nil, err
	}
	return c.openSPDY(ctx, at)
}

func (c *cluster) openSPDY(ctx context.Context, at *url.URL) (httpstream.Connection, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), nil)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return nil, err
	}
	protocol := portforward.PortForwardProtocolV1Name
	connection, _, err := spdy.NegotiateStreaming(upgrader, &http.Client{Transport: transport}, request, protocol)
	return connection, err
}

// echo follows the protocol of kubectl port-forward: an error stream and then a data stream, with the same ID.
func echo(connection httpstream.Connection, text string) error {
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, forwardedPort)
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	faults, err := connection.CreateStream(headers)
	if err != nil {
		return fmt.Errorf("failed to create the error stream: %w", err)
	}
	// Nothing is written to it.
	faults.Close()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(headers)
	if err != nil {
		return fmt.Errorf("failed to create the data stream: %w", err)
	}
	if _, err := io.WriteString(data, text); err != nil {
		return err
	}
	data.Close()
	answer, err := io.ReadAll(data)
	if err != nil {
		return err
	}
	if string(answer) == text {
		return nil
	}
	fault, err := io.ReadAll(faults)
	return errors.Join(fmt.Errorf("the answer is %q: %s", answer, fault), err)
}
