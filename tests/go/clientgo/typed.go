package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// shootState is the kind as a generator of clients sees it.
type shootState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              runtime.RawExtension `json:"spec,omitempty"`
}

type shootStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []shootState `json:"items"`
}

// DeepCopyObject copies.
func (s *shootState) DeepCopyObject() runtime.Object {
	copied := &shootState{TypeMeta: s.TypeMeta}
	s.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	s.Spec.DeepCopyInto(&copied.Spec)
	return copied
}

// DeepCopyObject copies.
func (l *shootStateList) DeepCopyObject() runtime.Object {
	copied := &shootStateList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&copied.ListMeta)
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopyObject().(*shootState))
	}
	return copied
}

type typedClient = gentype.ClientWithList[*shootState, *shootStateList]

// typed is a client as a generator makes it, for types of Go. It would rather have protobuf, as the clients of built-in kinds are
// configured in controllers; the kind has none.
func (p *place) typed(count *traffic) (*typedClient, error) {
	scheme := runtime.NewScheme()
	version := p.resource.GroupVersion()
	scheme.AddKnownTypeWithName(p.kind, &shootState{})
	scheme.AddKnownTypeWithName(version.WithKind(p.kind.Kind+"List"), &shootStateList{})
	metav1.AddToGroupVersion(scheme, version)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config := p.counted(count)
	config.GroupVersion, config.APIPath = &version, "/apis"
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return gentype.NewClientWithList[*shootState, *shootStateList](
		p.resource.Resource, client, runtime.NewParameterCodec(scheme), p.namespace,
		func() *shootState { return &shootState{} }, func() *shootStateList { return &shootStateList{} },
	), nil
}

// withoutKind drops what items of a list have and events do not have: the decoder of a watch drops it, with any server.
func withoutKind(object any) (any, error) {
	if state, is := object.(*shootState); is {
		state.TypeMeta = metav1.TypeMeta{}
	}
	return object, nil
}

// informTyped follows by an informer of a typed client.
func (f *follower) informTyped(at *place) error {
	f.typed = true
	if err := f.open(at); err != nil {
		return err
	}
	informer := cache.NewSharedIndexInformer(f.source, &shootState{}, 0, cache.Indexers{})
	if err := informer.SetTransform(withoutKind); err != nil {
		return err
	}
	return f.handle(informer)
}
