package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	finalizer    = "tests.repot.dev/kept"
	pollInterval = 100 * time.Millisecond
)

// reconciler gives each EtcdBackup a finalizer, a ShootState of its own, and a status that says so.
type reconciler struct{ client client.Client }

func newManager(ctx context.Context, at *place) (map[string]step, error) {
	manager, err := ctrl.NewManager(at.config, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		// Two replicas of a controller agree by a Lease, which is not ours to serve; one replica needs none.
		LeaderElection: false,
		// Reads are answered from the informers, as they are for typed objects.
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	if err != nil {
		return nil, err
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(empty(etcdBackup, "")).
		Owns(empty(shootState, "")).
		Complete(&reconciler{manager.GetClient()})
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	synced := func(ctx context.Context) (answer, error) {
		if manager.GetCache().WaitForCacheSync(ctx) {
			return at.count.numbers(), nil
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("the manager ended: %w", err)
		default:
			return nil, errors.New("its caches are not in sync")
		}
	}
	return map[string]step{"synced": synced}, nil
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	backup := empty(etcdBackup, "")
	if err := r.client.Get(ctx, request.NamespacedName, backup); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if backup.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, r.release(ctx, backup)
	}
	if controllerutil.AddFinalizer(backup, finalizer) {
		// The update is an event again.
		return ctrl.Result{}, r.client.Update(ctx, backup)
	}
	child := newShootState("of-"+backup.GetName(), 1)
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, child, func() error {
		if err := setCount(child, 1); err != nil {
			return err
		}
		return controllerutil.SetControllerReference(backup, child, r.client.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.record(ctx, backup, string(child.GetUID()))
}

// record writes the status when it is another one.
func (r *reconciler) record(ctx context.Context, backup *unstructured.Unstructured, uid string) error {
	before := backup.DeepCopy()
	if err := unstructured.SetNestedField(backup.Object, uid, "status", "message"); err != nil {
		return err
	}
	return r.client.Status().Patch(ctx, backup, client.MergeFrom(before))
}

// release takes the child away before the finalizer.
func (r *reconciler) release(ctx context.Context, backup *unstructured.Unstructured) error {
	child := empty(shootState, "of-"+backup.GetName())
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	if err := client.IgnoreNotFound(r.client.Delete(ctx, child, background)); err != nil {
		return err
	}
	if !controllerutil.RemoveFinalizer(backup, finalizer) {
		return nil
	}
	return client.IgnoreNotFound(r.client.Update(ctx, backup))
}
