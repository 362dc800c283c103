package main

import (
	"context"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// names is how many objects the writer plays with.
const names = 12

// sizes of the opaque state, from what fits into a record to several chunks.
var sizes = []int{10, 1_000, 80_000, 10, 600_000}

// A writer creates, changes and deletes objects, and remembers what was acknowledged.
type writer struct {
	at     *place
	client dynamic.ResourceInterface
	// Whether somebody disturbs the server: then a write without an answer is no fault, but its outcome is unknown.
	disturbed bool
	random    *rand.Rand
	pause     time.Duration
	stop      context.CancelFunc
	done      sync.WaitGroup

	lock sync.Mutex
	// resourceVersion of each acknowledged create or update -> name.
	versions map[string]string
	deletes  map[string]int
	// Names of which some outcome is unknown.
	unknown map[string]bool
	refused error
}

func newWriter(at *place, disturbed bool) (*writer, error) {
	client, err := at.objects(nil)
	return &writer{
		at: at, client: client, disturbed: disturbed, random: rand.New(rand.NewSource(1)),
		versions: map[string]string{}, deletes: map[string]int{}, unknown: map[string]bool{},
	}, err
}

func (w *writer) start(ctx context.Context) {
	ctx, w.stop = context.WithCancel(ctx)
	w.done.Add(1)
	go func() {
		defer w.done.Done()
		for number := int64(1); ctx.Err() == nil; number++ {
			select {
			case <-ctx.Done():
			case <-time.After(w.pause):
			}
			if err := w.step(number); err != nil {
				w.lock.Lock()
				w.refused = err
				w.lock.Unlock()
				return
			}
		}
	}()
}

// rest ends the writer after its current step.
func (w *writer) rest() (answer, error) {
	if w.stop != nil {
		w.stop()
	}
	w.done.Wait()
	w.lock.Lock()
	defer w.lock.Unlock()
	deleted := 0
	for _, count := range w.deletes {
		deleted += count
	}
	return answer{"written": len(w.versions), "deleted": deleted, "unknown": len(w.unknown)}, w.refused
}

// step reads one object and changes it in one way or another. Reading first makes each step independent of unknown outcomes.
func (w *writer) step(number int64) error {
	// A step that has begun is ended, so that rest leaves no outcome unknown.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	name := fmt.Sprintf("w-%d", w.random.Intn(names))
	current, err := w.client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		created, err := w.client.Create(ctx, w.render(nil, name, number), metav1.CreateOptions{})
		return w.note(name, created, err)
	case err != nil:
		return w.note(name, nil, err)
	case w.random.Intn(4) == 0:
		return w.noteDelete(name, w.client.Delete(ctx, name, metav1.DeleteOptions{}))
	default:
		updated, err := w.client.Update(ctx, w.render(current, name, number), metav1.UpdateOptions{})
		return w.note(name, updated, err)
	}
}

func (w *writer) render(current *unstructured.Unstructured, name string, number int64) *unstructured.Unstructured {
	object := current
	if object == nil {
		object = &unstructured.Unstructured{Object: map[string]any{}}
		object.SetGroupVersionKind(w.at.kind)
		object.SetName(name)
		object.SetNamespace(w.at.namespace)
		// Repot's webhooks refuse a deletion that is not confirmed.
		object.SetAnnotations(map[string]string{"confirmation.gardener.cloud/deletion": "true"})
	}
	object.SetLabels(map[string]string{"parity": []string{"even", "odd"}[w.random.Intn(2)]})
	filler := strings.Repeat(fmt.Sprintf("%08x", w.random.Uint32()), sizes[w.random.Intn(len(sizes))]/8+1)
	state := map[string]any{"number": number, "filler": filler}
	extension := map[string]any{"kind": "Worker", "name": "w", "state": state}
	object.Object["spec"] = map[string]any{"extensions": []any{extension}}
	return object
}

func (w *writer) note(name string, written *unstructured.Unstructured, err error) error {
	w.lock.Lock()
	defer w.lock.Unlock()
	if err != nil {
		return w.judge(name, err)
	}
	version := written.GetResourceVersion()
	if other, twice := w.versions[version]; twice {
		return fmt.Errorf("the writes of %s and %s were both acknowledged with resourceVersion %s", other, name, version)
	}
	w.versions[version] = name
	return nil
}

func (w *writer) noteDelete(name string, err error) error {
	w.lock.Lock()
	defer w.lock.Unlock()
	if err != nil {
		return w.judge(name, err)
	}
	w.deletes[name]++
	return nil
}

// judge tells a fault of the server from what a disturbance explains.
func (w *writer) judge(name string, err error) error {
	// An answer of the kind 4xx says that nothing was written: to a lone writer only after an outcome that it did not learn.
	definite := apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
	busy := apierrors.IsTooManyRequests(err)
	known := apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !busy
	if !w.disturbed || (known && !apierrors.IsInternalError(err) && !apierrors.IsServiceUnavailable(err) &&
		!apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !(definite && w.unknown[name])) {
		return fmt.Errorf("a write of %s was refused: %w", name, err)
	}
	w.unknown[name] = true
	return nil
}
