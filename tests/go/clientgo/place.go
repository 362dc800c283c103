package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A place is a namespace of ShootStates on some server.
type place struct {
	config    *rest.Config
	resource  schema.GroupVersionResource
	kind      schema.GroupVersionKind
	namespace string
}

// placeFlags are the flags that all commands share.
type placeFlags struct{ kubeconfig, group, version, namespace, resolver, translation string }

func (f *placeFlags) register(flags *flag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "how to reach the server")
	flags.StringVar(&f.group, "group", "core.gardener.cloud", "API group of ShootState")
	flags.StringVar(&f.version, "version", "v1alpha1", "its version")
	flags.StringVar(&f.namespace, "namespace", "default", "where to look and write")
	flags.StringVar(&f.resolver, "resolver", "", "the DNS server to ask, as host:port; empty for that of the machine")
	flags.StringVar(&f.translation, "translation", "", "addresses that stand for others, as 10.77=127.77")
}

func (f *placeFlags) open() (*place, error) {
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return nil, err
	}
	// The server is to be tried here, not the client's own brake.
	config.QPS = -1
	if f.resolver != "" {
		config.Dial = dialWith(f.resolver, f.translation)
	}
	version := schema.GroupVersion{Group: f.group, Version: f.version}
	return &place{config, version.WithResource("shootstates"), version.WithKind("ShootState"), f.namespace}, nil
}

// objects is a client of its own, whose requests are counted.
func (p *place) objects(count *traffic) (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(p.counted(count))
	if err != nil {
		return nil, err
	}
	return client.Resource(p.resource).Namespace(p.namespace), nil
}

func (p *place) metadata(count *traffic) (metadata.Interface, error) {
	return metadata.NewForConfig(p.counted(count))
}

func (p *place) counted(count *traffic) *rest.Config {
	config := rest.CopyConfig(p.config)
	if count != nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counter{next, count} })
	}
	return config
}

// traffic counts what one follower asked for: the proof that a mode was what its name says. With a name, the log tells of each request.
type traffic struct {
	name                                                 string
	lists, pages, watchLists, watches, expired, failures atomic.Int64
}

type counter struct {
	next  http.RoundTripper
	count *traffic
}

func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	switch {
	case query.Get("sendInitialEvents") == "true":
		c.count.watchLists.Add(1)
	case query.Get("watch") == "true":
		c.count.watches.Add(1)
	case query.Get("continue") != "":
		c.count.pages.Add(1)
	case request.Method == http.MethodGet:
		c.count.lists.Add(1)
	}
	response, err := c.next.RoundTrip(request)
	c.tell(request, response, err)
	switch {
	case err != nil || response.StatusCode >= 500:
		c.count.failures.Add(1)
	case response.StatusCode == http.StatusGone:
		c.count.expired.Add(1)
	}
	return response, err
}

func (c *counter) tell(request *http.Request, response *http.Response, err error) {
	if c.count.name == "" {
		return
	}
	what := fmt.Sprintf("%s: %s %s?%s", c.count.name, request.Method, request.URL.Path, request.URL.RawQuery)
	if err != nil {
		log.Printf("%s: %v", what, err)
		return
	}
	log.Printf("%s: %s", what, response.Status)
	response.Body = &watchedBody{response.Body, what}
}

// watchedBody tells when an answer has ended.
type watchedBody struct {
	io.ReadCloser
	what string
}

func (b *watchedBody) Read(into []byte) (int, error) {
	read, err := b.ReadCloser.Read(into)
	if err != nil {
		log.Printf("%s: ended: %v", b.what, err)
	}
	return read, err
}

func (t *traffic) numbers() map[string]int64 {
	return map[string]int64{
		"lists": t.lists.Load(), "pages": t.pages.Load(), "watchLists": t.watchLists.Load(),
		"watches": t.watches.Load(), "expired": t.expired.Load(), "failures": t.failures.Load(),
	}
}
