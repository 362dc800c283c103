package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// runtimeClient is what a controller holds: a client for writes and a cache for reads.
type runtimeClient struct {
	at     *place
	client client.Client
	cache  cache.Cache
}

func newRuntime(_ context.Context, at *place) (map[string]step, error) {
	writer, err := client.New(at.config, client.Options{})
	if err != nil {
		return nil, err
	}
	r := &runtimeClient{at: at, client: writer}
	return map[string]step{
		"create": r.create, "merge": r.merge, "lock": r.lock, "status": r.status, "apply": r.apply, "pages": r.pages,
		"metadata": r.metadata, "cache": r.follow, "delete": r.delete,
	}, nil
}

func (r *runtimeClient) create(ctx context.Context) (answer, error) {
	for _, object := range []client.Object{newShootState("one", 1), newEtcdBackup("one")} {
		if err := r.client.Create(ctx, object); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (r *runtimeClient) read(ctx context.Context, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	object := empty(kind, "one")
	return object, r.client.Get(ctx, client.ObjectKeyFromObject(object), object)
}

// merge sends the difference to what it read, and no version.
func (r *runtimeClient) merge(ctx context.Context) (answer, error) {
	object, err := r.read(ctx, shootState)
	if err != nil {
		return nil, err
	}
	before := object.DeepCopy()
	object.SetLabels(map[string]string{"merged": "yes"})
	if err := setCount(object, 2); err != nil {
		return nil, err
	}
	return nil, r.client.Patch(ctx, object, client.MergeFrom(before))
}

// lock sends the version that it read as well: the second of two such patches from one reading is a conflict.
func (r *runtimeClient) lock(ctx context.Context) (answer, error) {
	read, err := r.read(ctx, shootState)
	if err != nil {
		return nil, err
	}
	label := func(value string) error {
		object := read.DeepCopy()
		object.SetLabels(map[string]string{"locked": value})
		return r.client.Patch(ctx, object, client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{}))
	}
	if err := label("first"); err != nil {
		return nil, err
	}
	second := label("second")
	return answer{"conflict": apierrors.IsConflict(second), "said": fmt.Sprint(second)}, nil
}

// status patches and updates what belongs to status, with a change of spec that has to be left out.
func (r *runtimeClient) status(ctx context.Context) (answer, error) {
	object, err := r.read(ctx, etcdBackup)
	if err != nil {
		return nil, err
	}
	before := object.DeepCopy()
	if err := unstructured.SetNestedField(object.Object, "patched", "status", "message"); err != nil {
		return nil, err
	}
	if err := unstructured.SetNestedField(object.Object, "stolen", "spec", "clusterRef", "name"); err != nil {
		return nil, err
	}
	if err := r.client.Status().Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return nil, err
	}
	patched, _, _ := unstructured.NestedString(object.Object, "status", "message")
	if err := unstructured.SetNestedField(object.Object, "updated", "status", "message"); err != nil {
		return nil, err
	}
	if err := r.client.Status().Update(ctx, object); err != nil {
		return nil, err
	}
	return answer{"patched": patched}, nil
}

// apply has two owners of one field.
func (r *runtimeClient) apply(ctx context.Context) (answer, error) {
	as := func(owner string, count int64, options ...client.ApplyOption) error {
		object := client.ApplyConfigurationFromUnstructured(newShootState("applied", count))
		return r.client.Apply(ctx, object, append(options, client.FieldOwner(owner))...)
	}
	if err := as("first", 1); err != nil {
		return nil, err
	}
	conflict := as("second", 2)
	if err := as("second", 3, client.ForceOwnership); err != nil {
		return nil, err
	}
	return answer{"conflict": apierrors.IsConflict(conflict), "said": fmt.Sprint(conflict)}, nil
}

// pages reads all of a label by tens.
func (r *runtimeClient) pages(ctx context.Context) (answer, error) {
	sizes, names, next := []int{}, []string{}, ""
	for {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(shootState.GroupVersion().WithKind("ShootStateList"))
		options := []client.ListOption{
			client.InNamespace(namespace), client.MatchingLabels{"paged": "yes"}, client.Limit(10), client.Continue(next),
		}
		if err := r.client.List(ctx, list, options...); err != nil {
			return nil, err
		}
		sizes = append(sizes, len(list.Items))
		for _, item := range list.Items {
			names = append(names, item.GetName())
		}
		if next = list.GetContinue(); next == "" {
			return answer{"sizes": sizes, "names": names}, nil
		}
	}
}

// start begins a cache, whose informers come with the first reading.
func (r *runtimeClient) start(ctx context.Context) error {
	if r.cache != nil {
		return nil
	}
	made, err := cache.New(r.at.config, cache.Options{})
	if err != nil {
		return err
	}
	r.cache = made
	// It lives as long as the program does.
	go func() { _ = made.Start(context.WithoutCancel(ctx)) }()
	// A reading before the start is refused, and the start is another goroutine's.
	if !made.WaitForCacheSync(ctx) {
		return fmt.Errorf("the cache did not start: %w", ctx.Err())
	}
	return nil
}

// metadata reads through an informer that never sees a spec.
func (r *runtimeClient) metadata(ctx context.Context) (answer, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(shootState.GroupVersion().WithKind("ShootStateList"))
	seen, err := r.cached(ctx, list, func() map[string]string {
		found := map[string]string{}
		for _, item := range list.Items {
			found[item.Name] = item.ResourceVersion
		}
		return found
	})
	return answer{"versions": seen, "asked": r.at.count.numbers()}, err
}

// follow reads through an informer of whole objects.
func (r *runtimeClient) follow(ctx context.Context) (answer, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(shootState.GroupVersion().WithKind("ShootStateList"))
	seen, err := r.cached(ctx, list, func() map[string]string {
		found := map[string]string{}
		for _, item := range list.Items {
			found[item.GetName()] = item.GetResourceVersion()
		}
		return found
	})
	return answer{"versions": seen, "asked": r.at.count.numbers()}, err
}

// cached reads a list from the cache until it is what the server lists.
func (r *runtimeClient) cached(ctx context.Context, list client.ObjectList, seen func() map[string]string) (map[string]string, error) {
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	served := &unstructured.UnstructuredList{}
	served.SetGroupVersionKind(shootState.GroupVersion().WithKind("ShootStateList"))
	if err := r.client.List(ctx, served, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	is := func(found map[string]string) bool {
		for _, item := range served.Items {
			if found[item.GetName()] != item.GetResourceVersion() {
				return false
			}
		}
		return len(found) == len(served.Items)
	}
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		err := r.cache.List(ctx, list, client.InNamespace(namespace))
		return err == nil && is(seen()), err
	})
	return seen(), err
}

// delete takes one away with a precondition, and the rest of a label at once.
func (r *runtimeClient) delete(ctx context.Context) (answer, error) {
	object, err := r.read(ctx, shootState)
	if err != nil {
		return nil, err
	}
	wrong, uid := "0", object.GetUID()
	refused := r.client.Delete(ctx, object, client.Preconditions{ResourceVersion: &wrong})
	if err := r.client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return nil, err
	}
	all := []client.DeleteAllOfOption{client.InNamespace(namespace), client.MatchingLabels{"paged": "yes"}}
	if err := r.client.DeleteAllOf(ctx, empty(shootState, ""), all...); err != nil {
		return nil, err
	}
	return answer{"refused": apierrors.IsConflict(refused)}, nil
}
