package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// formsOf is a comparison of two clients of the same objects.
type formsOf struct {
	at *place
	// Asks in protobuf.
	slim metadata.ResourceInterface
	// Asks for whatever a request says.
	raw   *rest.RESTClient
	media mediaTypes
	name  string
}

// mediaTypes keeps the media type of the last answer.
type mediaTypes struct {
	lock sync.Mutex
	last string
}

type mediaRecorder struct {
	next  http.RoundTripper
	media *mediaTypes
}

func (r *mediaRecorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err == nil {
		r.media.lock.Lock()
		defer r.media.lock.Unlock()
		r.media.last = response.Header.Get("Content-Type")
	}
	return response, err
}

func (m *mediaTypes) expect(what, expected string) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.last != expected {
		return fmt.Errorf("%s was answered in %q and not in %q", what, m.last, expected)
	}
	return nil
}

// forms reads and changes one object, which the test has made, by the metadata client, and compares each answer with the same in JSON.
func forms(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("forms", flag.ContinueOnError)
	var where placeFlags
	where.register(flags)
	name := flags.String("name", "", "the object, which is deleted in the end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	at, err := where.open()
	if err != nil {
		return err
	}
	f := &formsOf{at: at, name: *name}
	config := rest.CopyConfig(at.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &mediaRecorder{next, &f.media} })
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	f.slim = client.Resource(at.resource).Namespace(at.namespace)
	config.GroupVersion, config.APIPath = &schema.GroupVersion{}, "/"
	config.NegotiatedSerializer = goldenCodecs.WithoutConversion()
	if f.raw, err = rest.RESTClientFor(config); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	steps := []func(context.Context) error{f.get, f.lists, f.watches, f.patches, f.failures, f.discovery, f.deletions}
	for number, step := range steps {
		if err := step(ctx); err != nil {
			return fmt.Errorf("step %d: %w", number+1, err)
		}
	}
	say(answer{"steps": len(steps)})
	return nil
}

func (f *formsOf) path() string {
	at := f.at
	return fmt.Sprintf("/apis/%s/%s/namespaces/%s/%s", at.resource.Group, at.resource.Version, at.namespace, at.resource.Resource)
}

func (f *formsOf) inJSON(ctx context.Context, path, accept string, into any) error {
	answer, err := f.raw.Get().RequestURI(path).SetHeader("Accept", accept).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

const (
	protobufType = runtime.ContentTypeProtobuf
	partialType  = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	listType     = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// sameMeta compares metadata, of which that in protobuf has no kind.
func sameMeta(what string, inJSON, inProtobuf *metav1.PartialObjectMetadata) error {
	bare := *inJSON
	bare.TypeMeta = metav1.TypeMeta{}
	if !reflect.DeepEqual(&bare, inProtobuf) {
		return fmt.Errorf("%s: in JSON it is %#v and in protobuf %#v", what, bare, *inProtobuf)
	}
	return nil
}

func (f *formsOf) one(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	var text metav1.PartialObjectMetadata
	return &text, f.inJSON(ctx, f.path()+"/"+f.name, "application/json"+partialType, &text)
}

func (f *formsOf) get(ctx context.Context) error {
	slim, err := f.slim.Get(ctx, f.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := f.media.expect("a GET", protobufType); err != nil {
		return err
	}
	text, err := f.one(ctx)
	if err != nil {
		return err
	}
	if len(text.ManagedFields) == 0 || len(text.OwnerReferences) == 0 || len(text.Annotations) == 0 || len(text.Finalizers) == 0 {
		return fmt.Errorf("there is too little to compare: %#v", text)
	}
	return sameMeta("a GET", text, slim)
}

func (f *formsOf) lists(ctx context.Context) error {
	for _, limit := range []int64{0, 1} {
		slim, err := f.slim.List(ctx, metav1.ListOptions{Limit: limit})
		if err != nil {
			return err
		}
		if err := f.media.expect("a LIST", protobufType); err != nil {
			return err
		}
		var text metav1.PartialObjectMetadataList
		path := fmt.Sprintf("%s?limit=%d", f.path(), limit)
		if err := f.inJSON(ctx, path, "application/json"+listType, &text); err != nil {
			return err
		}
		if len(text.Items) == 0 || len(text.Items) != len(slim.Items) {
			return fmt.Errorf("lists have %d and %d items", len(text.Items), len(slim.Items))
		}
		// A token may be another one for each list.
		if (text.Continue == "") != (slim.Continue == "") {
			return fmt.Errorf("a list goes on after %q and %q", text.Continue, slim.Continue)
		}
		text.Continue = slim.Continue
		if !reflect.DeepEqual(text.ListMeta, slim.ListMeta) {
			return fmt.Errorf("metadata of lists is %#v and %#v", text.ListMeta, slim.ListMeta)
		}
		for i := range text.Items {
			if err := sameMeta("an item", &text.Items[i], &slim.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func next(events watch.Interface, kind watch.EventType) (*metav1.PartialObjectMetadata, error) {
	event, open := <-events.ResultChan()
	if !open || event.Type != kind {
		return nil, fmt.Errorf("instead of %s came %#v", kind, event)
	}
	object, is := event.Object.(*metav1.PartialObjectMetadata)
	if !is {
		return nil, fmt.Errorf("%s of a %T", kind, event.Object)
	}
	return object, nil
}

// selected has events of the one object only.
func (f *formsOf) selected() string { return "metadata.name=" + f.name }

func (f *formsOf) watches(ctx context.Context) error {
	initial := true
	events, err := f.slim.Watch(ctx, metav1.ListOptions{
		FieldSelector: f.selected(), SendInitialEvents: &initial, AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		return err
	}
	defer events.Stop()
	if err := f.media.expect("a WATCH", protobufType+";stream=watch"); err != nil {
		return err
	}
	added, err := next(events, watch.Added)
	if err != nil {
		return err
	}
	text, err := f.one(ctx)
	if err != nil {
		return err
	}
	if err := sameMeta("an ADDED event", text, added); err != nil {
		return err
	}
	mark, err := next(events, watch.Bookmark)
	if err != nil {
		return err
	}
	if mark.Annotations[metav1.InitialEventsAnnotationKey] != "true" || mark.ResourceVersion == "" {
		return fmt.Errorf("the initial events end with %#v", mark)
	}
	return nil
}

func (f *formsOf) patches(ctx context.Context) error {
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
	patch := []byte(`{"metadata":{"labels":{"patched":"yes"}}}`)
	patched, err := f.slim.Patch(ctx, f.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	if err := f.media.expect("a PATCH", protobufType); err != nil {
		return err
	}
	text, err := f.one(ctx)
	if err != nil {
		return err
	}
	if err := sameMeta("a PATCH", text, patched); err != nil {
		return err
	}
	modified, err := next(events, watch.Modified)
	if err != nil {
		return err
	}
	return sameMeta("a MODIFIED event", text, modified)
}

// failure asks for something that fails and gives the Status as the client read it.
func (f *formsOf) failure(ctx context.Context, path, accept, expected string) (*metav1.Status, error) {
	err := f.raw.Get().RequestURI(path).SetHeader("Accept", accept).Do(ctx).Error()
	status, is := err.(apierrors.APIStatus)
	if !is {
		return nil, fmt.Errorf("%s with Accept: %s gave %w", path, accept, err)
	}
	read := status.Status()
	return &read, f.media.expect(path+" with Accept: "+accept, expected)
}

// failures come in protobuf to who takes it plainly, and in JSON to who takes it only for metadata, as kube-apiserver does it.
func (f *formsOf) failures(ctx context.Context) error {
	if _, err := f.slim.Get(ctx, "missing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("a missing object is answered with %w", err)
	}
	if err := f.media.expect("a failed GET", runtime.ContentTypeJSON); err != nil {
		return err
	}
	invalid := []byte(`{"metadata":{"labels":{"a b":"c d"}}}`)
	if _, err := f.slim.Patch(ctx, f.name, types.MergePatchType, invalid, metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		return fmt.Errorf("an invalid label is answered with %w", err)
	}
	missing, wrong := f.path()+"/missing", f.path()+"?limit=x"
	both := protobufType + "," + runtime.ContentTypeJSON
	for _, path := range []string{missing, wrong} {
		inJSON, err := f.failure(ctx, path, runtime.ContentTypeJSON, runtime.ContentTypeJSON)
		if err != nil {
			return err
		}
		inProtobuf, err := f.failure(ctx, path, both, protobufType)
		if err != nil {
			return err
		}
		if inJSON.Code < 400 || !reflect.DeepEqual(bareStatus(inJSON), bareStatus(inProtobuf)) {
			return fmt.Errorf("a failure is %#v in JSON and %#v in protobuf", inJSON, inProtobuf)
		}
	}
	// A custom resource as a whole has no protobuf.
	refused, err := f.failure(ctx, f.path()+"/"+f.name, protobufType, protobufType)
	if err != nil {
		return err
	}
	if refused.Code != http.StatusNotAcceptable {
		return fmt.Errorf("a whole object in protobuf is answered with %#v", refused)
	}
	if err := f.raw.Get().RequestURI(f.path()+"/"+f.name).SetHeader("Accept", both).Do(ctx).Into(&metav1.PartialObjectMetadata{}); err == nil {
		return fmt.Errorf("a whole object was taken for metadata")
	}
	if err := f.media.expect("a whole object", runtime.ContentTypeJSON); err != nil {
		return err
	}
	table := ";as=Table;g=meta.k8s.io;v=v1"
	var text metav1.Table
	if err := f.inJSON(ctx, f.path(), protobufType+table+","+runtime.ContentTypeJSON+table, &text); err != nil {
		return err
	}
	return f.media.expect("a table", runtime.ContentTypeJSON)
}

// bareStatus is a Status without what the client adds to it.
func bareStatus(status *metav1.Status) metav1.Status {
	bare := *status
	bare.TypeMeta = metav1.TypeMeta{}
	return bare
}

func (f *formsOf) discovery(ctx context.Context) error {
	group := "/apis/" + f.at.resource.Group
	aggregated := ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, asked := range []struct{ path, parameters string }{
		{"/apis", ""}, {group, ""}, {group + "/" + f.at.resource.Version, ""}, {"/apis", aggregated},
	} {
		var read [2]runtime.Object
		for at, media := range []string{runtime.ContentTypeJSON, protobufType} {
			answer, err := f.raw.Get().RequestURI(asked.path).SetHeader("Accept", media+asked.parameters).DoRaw(ctx)
			if err != nil {
				return fmt.Errorf("%s in %s: %w", asked.path, media, err)
			}
			f.media.lock.Lock()
			last := f.media.last
			f.media.lock.Unlock()
			if base, _, _ := mime.ParseMediaType(last); base != media || strings.Contains(last, "as=") != (asked.parameters != "") {
				return fmt.Errorf("%s in %s%s came in %s", asked.path, media, asked.parameters, last)
			}
			if read[at], err = decodeText(answer); err != nil {
				return fmt.Errorf("%s in %s: %w", asked.path, media, err)
			}
		}
		if err := sameObject(read[0], read[1]); err != nil {
			return fmt.Errorf("%s: %w", asked.path, err)
		}
	}
	return nil
}
