package main

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// deletions go by the metadata client and by options in protobuf.
func (f *formsOf) deletions(ctx context.Context) error {
	stranger, foreground := types.UID("00000000-0000-4000-8000-000000000000"), metav1.DeletePropagationForeground
	other := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &stranger}}
	if err := f.slim.Delete(ctx, f.name, other); !apierrors.IsConflict(err) {
		return fmt.Errorf("a deletion of another object is answered with %w", err)
	}
	remove := func(options metav1.DeleteOptions) error {
		options.TypeMeta = metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}
		text, err := json.Marshal(&options)
		if err != nil {
			return err
		}
		body, err := encodeGolden(string(text))
		if err != nil {
			return err
		}
		delete := f.raw.Delete().RequestURI(f.path()+"/"+f.name).SetHeader("Content-Type", protobufType)
		return delete.SetHeader("Accept", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
	}
	if err := remove(other); !apierrors.IsConflict(err) {
		return fmt.Errorf("a deletion of another object by protobuf is answered with %w", err)
	}
	before, err := f.one(ctx)
	if err != nil {
		return err
	}
	options := metav1.ListOptions{FieldSelector: f.selected(), ResourceVersion: before.ResourceVersion}
	events, err := f.slim.Watch(ctx, options)
	if err != nil {
		return err
	}
	defer events.Stop()
	if err := remove(metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		return err
	}
	deleting, err := next(events, watch.Modified)
	if err != nil {
		return err
	}
	text, err := f.one(ctx)
	if err != nil {
		return err
	}
	if text.DeletionTimestamp == nil || text.DeletionGracePeriodSeconds == nil {
		return fmt.Errorf("it is not being deleted: %#v", text)
	}
	if err := sameMeta("an object that is being deleted", text, deleting); err != nil {
		return err
	}
	release := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := f.slim.Patch(ctx, f.name, types.MergePatchType, release, metav1.PatchOptions{}); err != nil {
		return err
	}
	for {
		event, open := <-events.ResultChan()
		if !open || event.Type == watch.Error {
			return fmt.Errorf("instead of DELETED came %#v", event)
		}
		if event.Type == watch.Deleted {
			gone, is := event.Object.(*metav1.PartialObjectMetadata)
			if !is || gone.Name != f.name || gone.Labels["patched"] != "yes" || gone.ResourceVersion == text.ResourceVersion {
				return fmt.Errorf("it was deleted as %#v", event.Object)
			}
			break
		}
	}
	return f.slim.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}
