package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// A recorder keeps every event that a RetryWatcher passes on. Its order and completeness are judged, not only its last state.
type recorder struct {
	lock     sync.Mutex
	last     uint64
	versions map[string]string
	deletes  map[string]int
	events   map[string]int
	fault    error
}

func startRecorder(ctx context.Context, at *place) (*recorder, error) {
	client, err := at.objects(nil)
	if err != nil {
		return nil, err
	}
	list, err := client.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	source := &cache.ListWatch{WatchFuncWithContext: client.Watch}
	events, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), source)
	if err != nil {
		return nil, err
	}
	r := &recorder{versions: map[string]string{}, deletes: map[string]int{}, events: map[string]int{}}
	go func() {
		for event := range events.ResultChan() {
			r.record(event)
		}
	}()
	return r, nil
}

func (r *recorder) record(event watch.Event) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.fault != nil {
		return
	}
	if event.Type == watch.Error {
		r.fault = fmt.Errorf("the watch ended: %w", apierrors.FromObject(event.Object))
		return
	}
	object, err := meta.Accessor(event.Object)
	if err != nil {
		r.fault = err
		return
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil || version <= r.last {
		r.fault = fmt.Errorf("%s %s at %q came after %d", event.Type, object.GetName(), object.GetResourceVersion(), r.last)
		return
	}
	r.last = version
	r.events[object.GetName()]++
	if event.Type == watch.Deleted {
		r.deletes[object.GetName()]++
	} else {
		r.versions[object.GetResourceVersion()] = object.GetName()
	}
}

// verify waits until every acknowledged write was seen, and fails at once when something was seen that nobody wrote.
func (r *recorder) verify(ctx context.Context, written *writer) (int, error) {
	var missing error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		r.lock.Lock()
		defer r.lock.Unlock()
		if r.fault != nil {
			return false, r.fault
		}
		missing = r.missing(written)
		return missing == nil, r.surplus(written)
	})
	if wait.Interrupted(err) {
		err = missing
	}
	return len(r.versions) + len(r.deletes), err
}

func (r *recorder) missing(written *writer) error {
	for version, name := range written.versions {
		if seen, there := r.versions[version]; !there || seen != name {
			return fmt.Errorf("no event told the write of %s with resourceVersion %s", name, version)
		}
	}
	for name, count := range written.deletes {
		if r.deletes[name] < count {
			return fmt.Errorf("%s was deleted %d times and %d events said so", name, count, r.deletes[name])
		}
	}
	return nil
}

func (r *recorder) surplus(written *writer) error {
	acknowledged := map[string]int{}
	for _, name := range written.versions {
		acknowledged[name]++
	}
	for name, seen := range r.events {
		if !strings.HasPrefix(name, "w-") {
			continue // Somebody else wrote it.
		}
		if of := acknowledged[name] + written.deletes[name]; seen > of && !written.unknown[name] {
			return fmt.Errorf("%d events told of %d writes of %s", seen, of, name)
		}
	}
	return nil
}
