package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
)

// until waits with UntilWithSync, as `kubectl wait` and many controllers do, until an object has an annotation, or is gone.
func until(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("until", flag.ContinueOnError)
	var where placeFlags
	where.register(flags)
	name := flags.String("name", "", "the object")
	annotation := flags.String("annotation", "", "what it must come to have; its deletion is waited for when empty")
	deadline := flags.Duration("deadline", 60*time.Second, "the longest wait")
	if err := flags.Parse(args); err != nil {
		return err
	}
	at, err := where.open()
	if err != nil {
		return err
	}
	f := &follower{mode: "until", tweak: func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + *name }}
	if err := f.open(at); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *deadline)
	defer cancel()
	met := func(event watch.Event) (bool, error) {
		say(answer{"seen": event.Type})
		object, isObject := event.Object.(*unstructured.Unstructured)
		if !isObject {
			return false, fmt.Errorf("an event of type %T", event.Object)
		}
		if *annotation == "" {
			return event.Type == watch.Deleted, nil
		}
		_, has := object.GetAnnotations()[*annotation]
		return has, nil
	}
	last, err := watchtools.UntilWithSync(ctx, f.source, &unstructured.Unstructured{}, nil, met)
	if err != nil {
		return err
	}
	say(answer{"met": last.Type})
	return nil
}
