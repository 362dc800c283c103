package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// apply plays two managers of one object: each applies an entry of its own, one takes the other's over by force, and what nobody
// applies any longer goes.
func apply(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("apply", flag.ContinueOnError)
	var where placeFlags
	where.register(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	at, err := where.open()
	if err != nil {
		return err
	}
	client, err := at.objects(nil)
	if err != nil {
		return err
	}
	s := &scenario{at: at, client: client}
	for number, step := range []func(context.Context) error{s.each, s.conflict, s.force, s.release} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("step %d: %w", number+1, err)
		}
	}
	say(answer{"steps": 4})
	return nil
}

type scenario struct {
	at     *place
	client dynamic.ResourceInterface
}

const applied = "two-managers"

// apply applies entries of spec.gardener, name -> value.
func (s *scenario) apply(ctx context.Context, manager string, force bool, entries map[string]string) (map[string]string, error) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(s.at.kind)
	object.SetName(applied)
	object.SetNamespace(s.at.namespace)
	list := []any{}
	for name, value := range entries {
		list = append(list, map[string]any{"name": name, "type": "secret", "data": map[string]any{"value": value}})
	}
	object.Object["spec"] = map[string]any{"gardener": list}
	result, err := s.client.Apply(ctx, applied, object, metav1.ApplyOptions{FieldManager: manager, Force: force})
	if err != nil {
		return nil, err
	}
	return entriesOf(result), nil
}

func entriesOf(object *unstructured.Unstructured) map[string]string {
	found := map[string]string{}
	list, _, _ := unstructured.NestedSlice(object.Object, "spec", "gardener")
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		name, _, _ := unstructured.NestedString(fields, "name")
		found[name], _, _ = unstructured.NestedString(fields, "data", "value")
	}
	return found
}

func expect(found map[string]string, err error, expected map[string]string) error {
	if err != nil {
		return err
	}
	have, _ := json.Marshal(found)
	want, _ := json.Marshal(expected)
	if string(have) != string(want) {
		return fmt.Errorf("it has %s and not %s", have, want)
	}
	return nil
}

func (s *scenario) each(ctx context.Context) error {
	found, err := s.apply(ctx, "alice", false, map[string]string{"a": "1"})
	if err := expect(found, err, map[string]string{"a": "1"}); err != nil {
		return err
	}
	found, err = s.apply(ctx, "bob", false, map[string]string{"b": "2"})
	return expect(found, err, map[string]string{"a": "1", "b": "2"})
}

func (s *scenario) conflict(ctx context.Context) error {
	_, err := s.apply(ctx, "bob", false, map[string]string{"a": "3", "b": "2"})
	if !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return fmt.Errorf("taking a field of alice's is answered with %w", err)
	}
	object, err := s.client.Get(ctx, applied, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return expect(entriesOf(object), nil, map[string]string{"a": "1", "b": "2"})
}

func (s *scenario) force(ctx context.Context) error {
	found, err := s.apply(ctx, "bob", true, map[string]string{"a": "3", "b": "2"})
	if err := expect(found, err, map[string]string{"a": "3", "b": "2"}); err != nil {
		return err
	}
	// Now it is alice who is in conflict.
	if _, err := s.apply(ctx, "alice", false, map[string]string{"a": "1"}); !apierrors.IsConflict(err) {
		return fmt.Errorf("taking the field back is answered with %w", err)
	}
	return nil
}

// release has bob give up both entries: his own goes, the one that alice has as well stays until she gives it up, too.
func (s *scenario) release(ctx context.Context) error {
	found, err := s.apply(ctx, "bob", true, map[string]string{})
	if err := expect(found, err, map[string]string{"a": ""}); err != nil {
		return err
	}
	found, err = s.apply(ctx, "alice", false, map[string]string{})
	return expect(found, err, map[string]string{})
}
