package main

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const idleTimeout = 500 * time.Millisecond

// An operation runs once and returns whether kube-apiserver reached what it had to call.
type operation func(ctx context.Context, number int) error

// A stream calls line for each line that it receives, until it breaks or the context ends.
type stream func(ctx context.Context, line func()) error

// A cluster is what the load is on.
type cluster struct {
	settings
	// config is for requests that are upgraded to streams. Each of them makes a connection of its own.
	config *rest.Config
	dial   dialFunc
}

func openCluster(s settings) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	c := &cluster{settings: s, config: config}
	if s.resolver != "" {
		c.dial = dialWith(s.resolver, s.translation, s.deadline)
		if config.Proxy, err = startProxy(c.dial); err != nil {
			return nil, err
		}
	}
	return c, rest.LoadTLSFiles(config)
}

// everything is what the flags ask for.
func (c *cluster) everything() (map[string]operation, map[string]stream, error) {
	operations, streams := map[string]operation{}, map[string]stream{}
	clients := clients{cluster: c}
	if c.webhookNamespace != "" {
		operations["webhook"] = c.callWebhook(clients.add())
	}
	if c.aggregated != "" {
		operations["aggregated"] = c.listAggregated(clients.add())
	}
	if c.pod != "" {
		urls := clients.add()
		operations["logs"] = c.readLogs(clients.add())
		operations["exec"] = c.execOnce(urls)
		operations["portforward"] = c.forwardOnce(urls)
		streams["logs"] = c.followLogs(clients.add())
		streams["exec"] = c.execLong(urls)
	}
	return operations, streams, clients.err
}

// clients makes clients with transports of their own, so that operations of different kinds do not share a connection.
type clients struct {
	*cluster
	err error
}

func (c *clients) add() *kubernetes.Clientset {
	client, err := c.client()
	if err != nil {
		c.err = err
	}
	return client
}

func (c *cluster) client() (*kubernetes.Clientset, error) {
	tls, err := rest.TLSConfigFor(c.config)
	if err != nil {
		return nil, err
	}
	transport := utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: tls, DialContext: c.dial, IdleConnTimeout: idleTimeout,
		// The proxy of the configuration is for those that cannot dial by themselves.
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	})
	wrapped, err := rest.HTTPWrappersForConfig(c.config, &reconnecting{next: transport, every: c.reconnect})
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfigAndClient(c.config, &http.Client{Transport: wrapped})
}

// reconnecting closes its connections from time to time. Operations follow each other faster than a connection becomes idle, and
// only a new connection looks the server's name up again.
type reconnecting struct {
	next  *http.Transport
	every time.Duration
	mutex sync.Mutex
	last  time.Time
}

func (r *reconnecting) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mutex.Lock()
	if time.Since(r.last) > r.every {
		r.next.CloseIdleConnections()
		r.last = time.Now()
	}
	r.mutex.Unlock()
	response, err := r.next.RoundTrip(request)
	if fail, is := request.Context().Value(failKey{}).(context.CancelCauseFunc); is && err != nil {
		fail(err)
	}
	return response, err
}

// failKey is for a function in a context that ends the operation: otherwise client-go repeats a GET whose connection broke, while it
// is to repeat only what the server asked for by Retry-After.
type failKey struct{}
