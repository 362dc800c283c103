package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

var (
	goldenScheme = runtime.NewScheme()
	goldenCodecs = serializer.NewCodecFactory(goldenScheme)
)

func init() {
	for _, group := range []string{"", "meta.k8s.io"} {
		metav1.AddToGroupVersion(goldenScheme, schema.GroupVersion{Group: group, Version: "v1"})
	}
	for _, add := range []func(*runtime.Scheme) error{
		metav1.AddMetaToScheme, v1beta1.AddMetaToScheme, apidiscoveryv2.AddToScheme, apidiscoveryv2beta1.AddToScheme,
	} {
		utilruntime.Must(add(goldenScheme))
	}
}

// goldenDocuments are documents as a server writes them in JSON. The order of members and what is left out differ on purpose.
var goldenDocuments = []string{
	`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{}}`,
	`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"}`,
	`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":{"name":"a","creationTimestamp":null}}`,
	`{"metadata":{"annotations":{"b":"\u00e4 \"x\"\n","a":""},"creationTimestamp":"2024-02-29T12:00:00Z","deletionGracePeriodSeconds":0,` +
		`"deletionTimestamp":"2024-03-01T02:00:00+02:00","finalizers":["z.example.com/b","a.example.com/a"],"generateName":"a-",` +
		`"generation":300,"labels":{"z":"1","a":"2"},"name":"a","namespace":"b","ownerReferences":[` +
		`{"apiVersion":"v1","kind":"K","name":"n","uid":"u"},` +
		`{"apiVersion":"v1","kind":"K","name":"n","uid":"u","controller":false,"blockOwnerDeletion":true}],` +
		`"resourceVersion":"12345","selfLink":"/a","uid":"cb6ac1f6-9a3f-4b76-8e3f-6d0a8a3a3f5e","unknown":[{}]},` +
		`"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"}`,
	`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","generation":-1,"deletionGracePeriodSeconds":-9223372036854775808,"managedFields":[` +
		`{"manager":"m","operation":"Apply","apiVersion":"g/v1","time":"1969-12-31T23:59:59Z","fieldsType":"FieldsV1","fieldsV1":{ "f:a":{".":{} , "k:{\"a\":1}":{}}},"subresource":"status"},` +
		`{"manager":"","operation":"Update","time":null,"fieldsV1":null},` +
		`{"manager":"n","time":"2024-01-01T00:00:00.75Z","fieldsV1":{}}]}}`,
	`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","creationTimestamp":"0001-01-01T00:00:00Z","deletionTimestamp":"0001-01-01T00:00:00Z","labels":null,"annotations":{},"finalizers":[],"ownerReferences":null,"managedFields":[]}}`,
	`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[]}`,
	`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":0},"items":[` +
		`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","resourceVersion":"5"}},` +
		`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"b","resourceVersion":"6"}}]}`,
	`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1beta1","metadata":{"resourceVersion":"7"},"items":[` +
		`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":{"name":"a","resourceVersion":"5"}}]}`,
	`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`,
	`{"kind":"Status","apiVersion":"v1","metadata":{"continue":"next"},"status":"Failure","message":"m","reason":"Expired","code":410}`,
	`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"Invalid","details":{"name":"n","group":"g","kind":"k","uid":"u",` +
		`"causes":[{"reason":"FieldValueInvalid","message":"m","field":"f"},{"message":"only"}],"retryAfterSeconds":1},"code":422}`,
	`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","details":{},"code":-1}`,
	`{"kind":"APIVersions","apiVersion":"v1","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"s"}]}`,
	`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"g","versions":[{"groupVersion":"g/v1","version":"v1"}],"preferredVersion":{"groupVersion":"g/v1","version":"v1"}}]}`,
	`{"kind":"APIGroup","apiVersion":"v1","name":"g","versions":[],"preferredVersion":{"groupVersion":"","version":""}}`,
	`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"g/v1","resources":[` +
		`{"name":"as","singularName":"a","namespaced":true,"kind":"A","verbs":["get","list"],"shortNames":["x"],"categories":["all"],"storageVersionHash":"h="},` +
		`{"name":"as/status","singularName":"","namespaced":false,"group":"h","version":"v2","kind":"A","verbs":[]},` +
		`{"name":"bs","singularName":"","namespaced":false,"kind":"B","verbs":null}]}`,
	`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"g","creationTimestamp":null},"versions":[{"version":"v1",` +
		`"resources":[{"resource":"as","responseKind":{"group":"g","version":"v1","kind":"A"},"scope":"Namespaced","singularResource":"a","verbs":["get"],"shortNames":["x"],"categories":["all"],` +
		`"subresources":[{"subresource":"status","responseKind":{"group":"g","version":"v1","kind":"A"},"acceptedTypes":[{"group":"g","version":"v1","kind":"A"}],"verbs":["patch"]},{"subresource":"x","verbs":[]}]}],"freshness":"Current"}]}]}`,
	`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2beta1","metadata":{},"items":[]}`,
}

// goldenOptions are options as clients send them in protobuf.
var goldenOptions = []string{
	`{"kind":"DeleteOptions","apiVersion":"v1"}`,
	`{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","gracePeriodSeconds":0,"orphanDependents":false}`,
	`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":-1,"preconditions":{"uid":"u","resourceVersion":"7"},"orphanDependents":true,` +
		`"propagationPolicy":"Foreground","dryRun":["All","Other"],"ignoreStoreReadErrorWithClusterBreakingPotential":true}`,
	`{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{}}`,
}

// golden is one line of the file of goldens.
type golden struct {
	JSON     string `json:"json"`
	Event    string `json:"event,omitempty"`
	Protobuf string `json:"protobuf"`
}

// goldens prints what Go's own types make of documents, for the unit tests of apiserver/api/src/protobuf.
func goldens(context.Context, []string) error {
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for _, text := range append(goldenDocuments, goldenOptions...) {
		encoded, err := encodeGolden(text)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		if err := out.Encode(golden{JSON: text, Protobuf: hex.EncodeToString(encoded)}); err != nil {
			return err
		}
	}
	for _, event := range []struct{ kind, text string }{{"MODIFIED", goldenDocuments[3]}, {"ERROR", goldenDocuments[11]}} {
		kind, text := event.kind, event.text
		encoded, err := encodeEvent(kind, text)
		if err != nil {
			return err
		}
		if err := out.Encode(golden{JSON: text, Event: kind, Protobuf: hex.EncodeToString(encoded)}); err != nil {
			return err
		}
	}
	return nil
}

func decodeText(text []byte) (runtime.Object, error) {
	object, kind, err := goldenCodecs.UniversalDeserializer().Decode(text, nil, nil)
	if err == nil {
		object.GetObjectKind().SetGroupVersionKind(*kind)
	}
	return object, err
}

func encodeGolden(text string) ([]byte, error) {
	object, err := decodeText([]byte(text))
	if err != nil {
		return nil, err
	}
	return runtime.Encode(protobuf.NewSerializer(goldenScheme, goldenScheme), object)
}

// encodeEvent encodes as the handler of watches does: the object within an envelope, the event without one, its length in front.
func encodeEvent(kind, text string) ([]byte, error) {
	object, err := encodeGolden(text)
	if err != nil {
		return nil, err
	}
	event := &metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}}
	raw, err := runtime.Encode(protobuf.NewRawSerializer(goldenScheme, goldenScheme), event)
	if err != nil {
		return nil, err
	}
	length := uint32(len(raw))
	return append([]byte{byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)}, raw...), nil
}

// decode reads lines of {"json": text, "protobuf": base64} and says of each whether Go reads the same from both.
func decode(context.Context, []string) error {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil
		}
		reply := answer{}
		if err := decodeLine(line); err != nil {
			reply = failed(err)
		}
		say(reply)
	}
}

func decodeLine(line []byte) error {
	var both golden
	if err := json.Unmarshal(line, &both); err != nil {
		return err
	}
	encoded, err := base64.StdEncoding.DecodeString(both.Protobuf)
	if err != nil {
		return err
	}
	fromText, err := decodeText([]byte(both.JSON))
	if err != nil {
		return fmt.Errorf("the JSON: %w", err)
	}
	fromBytes, err := decodeText(encoded)
	if err != nil {
		return fmt.Errorf("the protobuf: %w", err)
	}
	return sameObject(fromText, fromBytes)
}

// sameObject compares what came as JSON with what came as protobuf, in which items of lists have no kind and nothing is an empty list.
func sameObject(fromText, fromBytes runtime.Object) error {
	texts := make([][]byte, 2)
	for at, object := range []runtime.Object{fromText, fromBytes} {
		if list, is := object.(*metav1.PartialObjectMetadataList); is {
			list.Items = append([]metav1.PartialObjectMetadata{}, list.Items...)
			for i := range list.Items {
				list.Items[i].TypeMeta = metav1.TypeMeta{}
			}
		}
		text, err := json.Marshal(object)
		if err != nil {
			return err
		}
		texts[at] = text
	}
	if string(texts[0]) != string(texts[1]) {
		return fmt.Errorf("as JSON it is %s and as protobuf %s", texts[0], texts[1])
	}
	return nil
}
