package main

import (
	"context"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

const (
	// The page of paged followers: small, so that a few objects make several pages.
	page = 3
	// The label by whose value objects come into and leave what followers with a selector see.
	selector = "parity=even"
	// The one object that followers by name see.
	single = "w-1"
)

// modes are the ways to follow a collection.
var modes = map[string]func(*follower, *place) error{
	"list":              byReflector(func(f *follower) { f.plain = true }),
	"watchlist":         byReflector(func(*follower) {}),
	"paged":             byReflector(func(f *follower) { f.plain, f.page = true, page }),
	"selector":          byReflector(func(f *follower) { f.tweak = bySelector }),
	"selector-list":     byReflector(func(f *follower) { f.plain, f.tweak = true, bySelector }),
	"name":              byReflector(func(f *follower) { f.tweak = byName }),
	"metadata":          byReflector(func(f *follower) { f.slim = true }),
	"metadata-list":     byReflector(func(f *follower) { f.slim, f.plain, f.page = true, true, page }),
	"informer":          (*follower).inform,
	"metadata-informer": (*follower).informOfMetadata,
	"typed-informer":    (*follower).informTyped,
}

func bySelector(options *metav1.ListOptions) { options.LabelSelector = selector }
func byName(options *metav1.ListOptions)     { options.FieldSelector = "metadata.name=" + single }

// A follower keeps a copy of a collection by one of client-go's ways. verify compares it with a LIST of the same form.
type follower struct {
	mode string
	// Never by WatchList.
	plain bool
	// PartialObjectMetadata instead of whole objects.
	slim bool
	// Types of Go instead of maps.
	typed bool
	page  int64
	tweak func(*metav1.ListOptions)

	source cache.ListerWatcher
	// A LIST that is not counted.
	list   listCall
	copied func() map[string]any
	synced func() bool
	run    func(context.Context)
	count  traffic
}

func newFollower(mode string, at *place) (*follower, error) {
	prepare, known := modes[mode]
	if !known {
		return nil, fmt.Errorf("no such mode: %s", mode)
	}
	f := &follower{mode: mode, tweak: func(*metav1.ListOptions) {}}
	f.count.name = mode
	if err := prepare(f, at); err != nil {
		return nil, err
	}
	return f, nil
}

func byReflector(choose func(*follower)) func(*follower, *place) error {
	return func(f *follower, at *place) error {
		choose(f)
		if err := f.open(at); err != nil {
			return err
		}
		store := &syncedStore{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
		reflector := cache.NewReflectorWithOptions(f.source, f.example(at), store, cache.ReflectorOptions{
			Name: f.mode,
			// As the default, but quick: restarts are what tests are made of.
			Backoff: &wait.Backoff{Duration: 50 * time.Millisecond, Cap: time.Second, Steps: 20, Factor: 2, Jitter: 1},
		})
		reflector.WatchListPageSize = f.page
		f.copied, f.synced = store.copied, store.synced
		f.run = reflector.RunWithContext
		return nil
	}
}

// example tells the reflector which type to expect.
func (f *follower) example(at *place) any {
	if f.slim {
		return &metav1.PartialObjectMetadata{}
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(at.kind)
	return object
}

// open makes the source: the client's calls, with what the mode asks for in the options.
func (f *follower) open(at *place) error {
	list, watchFrom, err := f.calls(at, &f.count)
	if err != nil {
		return err
	}
	if f.list, _, err = f.calls(at, nil); err != nil {
		return err
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			f.tweak(&options)
			return list(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			f.tweak(&options)
			events, err := watchFrom(ctx, options)
			if err != nil {
				return nil, err
			}
			return watch.Filter(events, f.noteExpired), nil
		},
	}
	f.source = source
	if f.plain {
		f.source = withoutWatchList{source}
	}
	return nil
}

type (
	listCall  = func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watchCall = func(context.Context, metav1.ListOptions) (watch.Interface, error)
)

func (f *follower) calls(at *place, count *traffic) (listCall, watchCall, error) {
	if f.slim {
		client, err := at.metadata(count)
		if err != nil {
			return nil, nil, err
		}
		of := client.Resource(at.resource).Namespace(at.namespace)
		return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return of.List(ctx, o) }, of.Watch, nil
	}
	if f.typed {
		of, err := at.typed(count)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return of.List(ctx, o) }, of.Watch, nil
	}
	of, err := at.objects(count)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return of.List(ctx, o) }, of.Watch, nil
}

// noteExpired passes every event on.
func (f *follower) noteExpired(event watch.Event) (watch.Event, bool) {
	if event.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
		f.count.expired.Add(1)
	}
	return event, true
}

// withoutWatchList has the reflector use LIST and WATCH.
type withoutWatchList struct{ *cache.ListWatch }

func (withoutWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// inform follows by a shared informer of the dynamic client; the copy is what its handler was told.
func (f *follower) inform(at *place) error {
	if err := f.open(at); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(at.counted(&f.count))
	if err != nil {
		return err
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, at.resource, at.namespace, 0, cache.Indexers{}, nil)
	return f.handle(informer.Informer())
}

func (f *follower) informOfMetadata(at *place) error {
	f.slim = true
	if err := f.open(at); err != nil {
		return err
	}
	client, err := at.metadata(&f.count)
	if err != nil {
		return err
	}
	informer := metadatainformer.NewFilteredMetadataInformer(client, at.resource, at.namespace, 0, cache.Indexers{}, nil)
	return f.handle(informer.Informer())
}

func (f *follower) handle(informer cache.SharedIndexInformer) error {
	told := &told{objects: map[string]any{}}
	registered, err := informer.AddEventHandler(told)
	f.copied, f.synced, f.run = told.copied, registered.HasSynced, informer.RunWithContext
	return err
}

// observe lists with the follower's own options: what its copy has to become.
func (f *follower) observe(ctx context.Context) (map[string]any, error) {
	options := metav1.ListOptions{}
	f.tweak(&options)
	list, err := f.list(ctx, options)
	if err != nil {
		return nil, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	found := map[string]any{}
	for _, item := range items {
		key, err := cache.MetaNamespaceKeyFunc(item)
		if err != nil {
			return nil, err
		}
		if found[key], err = withoutKind(item); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// verify waits until the copy equals a LIST.
func (f *follower) verify(ctx context.Context) (int, error) {
	var why error
	items := 0
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		listed, err := f.observe(ctx)
		if err != nil {
			why = err
			return false, nil
		}
		items, why = len(listed), difference(listed, f.copied())
		return why == nil, nil
	})
	if err != nil {
		return items, fmt.Errorf("%s: %w", f.mode, why)
	}
	return items, nil
}

// newest is the highest resourceVersion of these objects.
func newest(objects map[string]any) uint64 {
	var highest uint64
	for _, object := range objects {
		var text string
		if fields, is := object.(map[string]any); is {
			text, _, _ = unstructured.NestedString(fields, "metadata", "resourceVersion")
		} else if accessor, err := meta.Accessor(object); err == nil {
			text = accessor.GetResourceVersion()
		}
		version, _ := strconv.ParseUint(text, 10, 64)
		highest = max(highest, version)
	}
	return highest
}

func difference(listed, copied map[string]any) error {
	var differing []string
	for key, object := range listed {
		if !reflect.DeepEqual(object, copied[key]) {
			differing = append(differing, key)
		}
	}
	for key := range copied {
		if listed[key] == nil {
			differing = append(differing, key+" (gone)")
		}
	}
	if len(differing) == 0 {
		return nil
	}
	sort.Strings(differing)
	return fmt.Errorf("LIST has %d objects up to version %d, and the copy %d up to %d; not equal: %v",
		len(listed), newest(listed), len(copied), newest(copied), differing)
}
