package main

import (
	"context"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// flux is the manager with which Flux's kustomize-controller applies, and the two objects that it is given.
type flux struct {
	at      *place
	manager *ssa.ResourceManager
	count   int64
}

func newFlux(_ context.Context, at *place) (map[string]step, error) {
	writer, err := client.New(at.config, client.Options{})
	if err != nil {
		return nil, err
	}
	poller := polling.NewStatusPoller(writer, writer.RESTMapper(), polling.Options{})
	owner := ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"}
	f := &flux{at: at, manager: ssa.NewResourceManager(writer, poller, owner), count: 1}
	return map[string]step{
		"diff": f.diff, "apply": f.apply, "change": f.change, "wait": f.wait, "delete": f.delete,
	}, nil
}

func (f *flux) objects() []*unstructured.Unstructured {
	objects := []*unstructured.Unstructured{newShootState("flux", f.count), newEtcdBackup("flux")}
	f.manager.SetOwnerLabels(objects, "app", "flux-system")
	return objects
}

// change is a new commit.
func (f *flux) change(context.Context) (answer, error) {
	f.count++
	return nil, nil
}

// diff compares by dry runs.
func (f *flux) diff(ctx context.Context) (answer, error) {
	actions := []string{}
	for _, object := range f.objects() {
		entry, _, _, err := f.manager.Diff(ctx, object, ssa.DefaultDiffOptions())
		if err != nil {
			return nil, err
		}
		actions = append(actions, string(entry.Action))
	}
	return answer{"actions": actions, "asked": f.at.count.numbers()}, nil
}

func (f *flux) apply(ctx context.Context) (answer, error) {
	changes, err := f.manager.ApplyAll(ctx, f.objects(), ssa.DefaultApplyOptions())
	if err != nil {
		return nil, err
	}
	return answer{"actions": actionsOf(changes), "asked": f.at.count.numbers()}, nil
}

func actionsOf(changes *ssa.ChangeSet) map[string]string {
	actions := map[string]string{}
	for _, entry := range changes.Entries {
		actions[entry.Subject] = string(entry.Action)
	}
	return actions
}

// wait is Flux's health check: until kstatus calls both current.
func (f *flux) wait(ctx context.Context) (answer, error) {
	options := ssa.DefaultWaitOptions()
	options.Interval, options.Timeout = pollInterval, stepDeadline
	return nil, f.manager.Wait(f.objects(), options)
}

func (f *flux) delete(ctx context.Context) (answer, error) {
	options := ssa.DefaultDeleteOptions()
	options.Inclusions = f.manager.GetOwnerLabels("app", "flux-system")
	changes, err := f.manager.DeleteAll(ctx, f.objects(), options)
	if err != nil {
		return nil, err
	}
	waiting := ssa.DefaultWaitOptions()
	waiting.Interval, waiting.Timeout = pollInterval, stepDeadline
	if err := f.manager.WaitForTermination(f.objects(), waiting); err != nil {
		return nil, err
	}
	return answer{"actions": actionsOf(changes)}, nil
}
