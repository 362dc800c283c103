package main

import (
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const namespace = "default"

var (
	shootState = schema.GroupVersionKind{Group: "core.gardener.cloud", Version: "v1alpha1", Kind: "ShootState"}
	etcdBackup = schema.GroupVersionKind{Group: "migration.gardener.cloud", Version: "v1alpha1", Kind: "EtcdBackup"}
)

// A place is a server, and the count of what was asked of it.
type place struct {
	config *rest.Config
	count  *traffic
}

func open(kubeconfig string) (*place, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	// The server is to be tried here, not the client's own brake.
	config.QPS = -1
	count := &traffic{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counter{next, count} })
	return &place{config, count}, nil
}

// traffic counts requests for objects of ours: the proof that a library worked the way its name says.
type traffic struct{ lists, pages, watchLists, watches, applies, dryRuns, failures atomic.Int64 }

type counter struct {
	next  http.RoundTripper
	count *traffic
}

func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if !isOurs(request.URL.Path) {
		return response, err
	}
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
	case query.Get("dryRun") != "":
		c.count.dryRuns.Add(1)
	case request.Header.Get("Content-Type") == "application/apply-patch+yaml":
		c.count.applies.Add(1)
	}
	if err != nil || response.StatusCode >= http.StatusInternalServerError {
		c.count.failures.Add(1)
	}
	return response, err
}

func isOurs(path string) bool {
	return len(path) > len("/apis/") && (hasPrefix(path, shootState.Group) || hasPrefix(path, etcdBackup.Group))
}

func hasPrefix(path, group string) bool {
	start := "/apis/" + group + "/v1alpha1/"
	return len(path) > len(start) && path[:len(start)] == start
}

func (t *traffic) numbers() answer {
	return answer{
		"lists": t.lists.Load(), "pages": t.pages.Load(), "watchLists": t.watchLists.Load(), "watches": t.watches.Load(),
		"applies": t.applies.Load(), "dryRuns": t.dryRuns.Load(), "failures": t.failures.Load(),
	}
}

func empty(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// newShootState has one secret and an opaque state with a number in it.
func newShootState(name string, count int64) *unstructured.Unstructured {
	object := empty(shootState, name)
	object.Object["spec"] = map[string]any{
		"gardener":   []any{map[string]any{"name": "ca", "type": "secret", "data": map[string]any{"data": map[string]any{"ca.key": "c2VjcmV0"}}}},
		"extensions": []any{map[string]any{"kind": "Worker", "name": "w", "state": map[string]any{"count": count}}},
	}
	return object
}

func newEtcdBackup(name string) *unstructured.Unstructured {
	object := empty(etcdBackup, name)
	object.Object["spec"] = map[string]any{"clusterRef": map[string]any{"name": "main"}}
	return object
}

func setCount(object *unstructured.Unstructured, count int64) error {
	extension := map[string]any{"kind": "Worker", "name": "w", "state": map[string]any{"count": count}}
	return unstructured.SetNestedSlice(object.Object, []any{extension}, "spec", "extensions")
}
