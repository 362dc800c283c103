package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/sirupsen/logrus"
	velero "github.com/vmware-tanzu/velero/pkg/client"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"
)

const (
	// What Velero's server asks for at once unless it is told otherwise.
	veleroPage   = 500
	restoreLabel = "velero.io/restore-name"
)

// What Velero takes from the metadata of an object before it creates it again; labels, finalizers and managers stay.
var veleroDrops = []string{
	"generateName", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
	"deletionGracePeriodSeconds", "ownerReferences",
}

// backups is Velero's discovery and its clients. The order of calls is played after its item collector and its restorer: those come with
// the clients of three clouds and cost minutes to compile.
type backups struct {
	at     *place
	helper discovery.Helper
	// The archive: each object as a list gave it, by resource.
	archive map[schema.GroupVersionResource][][]byte
}

func newVelero(_ context.Context, at *place) (map[string]step, error) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	client, err := clientdiscovery.NewDiscoveryClientForConfig(at.config)
	if err != nil {
		return nil, err
	}
	helper, err := discovery.NewHelper(client, log)
	if err != nil {
		return nil, err
	}
	b := &backups{at: at, helper: helper, archive: map[schema.GroupVersionResource][][]byte{}}
	return map[string]step{"kinds": b.kinds, "backup": b.backup, "restore": b.restore}, nil
}

var veleroKinds = []schema.GroupVersionKind{shootState, etcdBackup}

// kinds says under which names and versions Velero would back up what is ours.
func (b *backups) kinds(context.Context) (answer, error) {
	found := []string{}
	for _, kind := range veleroKinds {
		resource, _, err := b.helper.KindFor(kind)
		if err != nil {
			return nil, err
		}
		found = append(found, resource.String())
	}
	short, _, err := b.helper.ResourceFor(schema.GroupVersionResource{Resource: "ebak"})
	if err != nil {
		return nil, err
	}
	groups := []string{}
	for _, group := range b.helper.APIGroups() {
		if group.Name == shootState.Group || group.Name == etcdBackup.Group {
			groups = append(groups, group.PreferredVersion.GroupVersion)
		}
	}
	return answer{"kinds": found, "short": short.Resource, "preferred": groups, "taken": b.taken()}, nil
}

// taken are our resources that can be listed, created, read and deleted: Velero passes over the others.
func (b *backups) taken() []string {
	names := []string{}
	for _, list := range b.helper.Resources() {
		for _, resource := range list.APIResources {
			if list.GroupVersion == shootState.GroupVersion().String() || list.GroupVersion == etcdBackup.GroupVersion().String() {
				names = append(names, resource.Name)
			}
		}
	}
	return names
}

func (b *backups) client(kind schema.GroupVersionKind) (velero.Dynamic, schema.GroupVersionResource, error) {
	resource, info, err := b.helper.KindFor(kind)
	if err != nil {
		return nil, resource, err
	}
	source, err := dynamic.NewForConfig(b.at.config)
	if err != nil {
		return nil, resource, err
	}
	client, err := velero.NewDynamicFactory(source).ClientForGroupVersionResource(kind.GroupVersion(), info, namespace)
	return client, resource, err
}

// backup keeps what the pages of a list hold; no object is read by itself.
func (b *backups) backup(ctx context.Context) (answer, error) {
	kept := map[string]int{}
	for _, kind := range veleroKinds {
		client, resource, err := b.client(kind)
		if err != nil {
			return nil, err
		}
		pages := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) { return client.List(options) }))
		pages.PageSize = veleroPage
		list, _, err := pages.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		b.archive[resource] = nil
		err = meta.EachListItem(list, func(object runtime.Object) error {
			text, err := json.Marshal(object)
			b.archive[resource] = append(b.archive[resource], text)
			return err
		})
		if err != nil {
			return nil, err
		}
		kept[kind.Kind] = len(b.archive[resource])
	}
	return answer{"kept": kept, "asked": b.at.count.numbers()}, nil
}

// restore creates what is not there, writes its status, and gives its fields back to their managers.
func (b *backups) restore(context.Context) (answer, error) {
	made, there := map[string]int{}, map[string]int{}
	for _, kind := range veleroKinds {
		client, resource, err := b.client(kind)
		if err != nil {
			return nil, err
		}
		for _, text := range b.archive[resource] {
			object := &unstructured.Unstructured{}
			if err := json.Unmarshal(text, object); err != nil {
				return nil, err
			}
			switch err := restoreOne(client, object); {
			case apierrors.IsAlreadyExists(err):
				there[kind.Kind]++
			case err != nil:
				return nil, fmt.Errorf("%s: %w", object.GetName(), err)
			default:
				made[kind.Kind]++
			}
		}
	}
	return answer{"made": made, "there": there}, nil
}

func restoreOne(client velero.Dynamic, object *unstructured.Unstructured) error {
	status, hasStatus, err := unstructured.NestedFieldCopy(object.Object, "status")
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(object.Object, "status")
	for _, field := range veleroDrops {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[restoreLabel] = "restore"
	object.SetLabels(labels)
	created, err := client.Create(object)
	if err != nil {
		return err
	}
	if hasStatus {
		if err := unstructured.SetNestedField(object.Object, status, "status"); err != nil {
			return err
		}
		object.SetResourceVersion(created.GetResourceVersion())
		if created, err = client.UpdateStatus(object, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return restoreManagers(client, created, object.GetManagedFields())
}

// restoreManagers is a merge patch of managedFields alone.
func restoreManagers(client velero.Dynamic, created *unstructured.Unstructured, managers []metav1.ManagedFieldsEntry) error {
	owned := created.DeepCopy()
	owned.SetManagedFields(managers)
	before, err := json.Marshal(created)
	if err != nil {
		return err
	}
	after, err := json.Marshal(owned)
	if err != nil {
		return err
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil || string(patch) == "{}" {
		return err
	}
	_, err = client.Patch(created.GetName(), patch)
	return err
}
