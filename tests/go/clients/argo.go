package main

import (
	"context"
	"fmt"
	"sort"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/engine"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	trackingLabel = "app.kubernetes.io/instance"
	argoManager   = "argocd-controller"
)

// argo is the engine of Argo CD's application controller: a cache of the whole cluster, diffs and syncs.
type argo struct {
	at      *place
	kubectl kube.Kubectl
	cache   cache.ClusterCache
	engine  engine.GitOpsEngine
	count   int64
	backup  bool
}

func newArgo(_ context.Context, at *place) (map[string]step, error) {
	kubectl := &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}
	keep := func(object *unstructured.Unstructured, _ bool) (any, bool) {
		return nil, object.GetLabels()[trackingLabel] != ""
	}
	known := cache.NewClusterCache(at.config, cache.SetKubectl(kubectl), cache.SetLogr(logr.Discard()), cache.SetPopulateResourceInfoHandler(keep))
	made := engine.NewEngine(at.config, known, engine.WithKubectl(kubectl), engine.WithLogr(logr.Discard()))
	if _, err := made.Run(); err != nil {
		return nil, err
	}
	a := &argo{at: at, kubectl: kubectl, cache: known, engine: made, count: 1, backup: true}
	return map[string]step{
		"kinds": a.kinds, "sync": a.sync, "server-sync": a.serverSync, "change": a.change, "drop": a.drop, "cached": a.cached,
		"diff": a.diff, "server-diff": a.serverDiff,
	}, nil
}

// change is a new commit.
func (a *argo) change(context.Context) (answer, error) {
	a.count++
	return nil, nil
}

// drop is a commit without the backup, which is then to be pruned.
func (a *argo) drop(context.Context) (answer, error) {
	a.backup = false
	return nil, nil
}

func (a *argo) targets() []*unstructured.Unstructured {
	targets := []*unstructured.Unstructured{newShootState("argo", a.count)}
	if a.backup {
		targets = append(targets, newEtcdBackup("argo"))
	}
	for _, target := range targets {
		target.SetLabels(map[string]string{trackingLabel: "app"})
	}
	return targets
}

func isManaged(resource *cache.Resource) bool {
	return resource.Resource != nil && resource.Resource.GetLabels()[trackingLabel] == "app"
}

// kinds says what of ours discovery and the published schema hold.
func (a *argo) kinds(context.Context) (answer, error) {
	found := []string{}
	for _, resource := range a.cache.GetAPIResources() {
		if resource.GroupKind == shootState.GroupKind() || resource.GroupKind == etcdBackup.GroupKind() {
			found = append(found, resource.GroupKind.Kind)
		}
	}
	sort.Strings(found)
	parser := a.cache.GetGVKParser()
	return answer{
		"discovered": found, "typed": parser != nil && parser.Type(shootState) != nil && parser.Type(etcdBackup) != nil,
		"described": a.cache.GetOpenAPISchema() != nil && a.cache.GetOpenAPISchema().LookupResource(shootState) != nil,
		"version":   a.cache.GetServerVersion(),
	}, nil
}

func (a *argo) sync(ctx context.Context) (answer, error) { return a.syncBy(ctx, false) }

func (a *argo) serverSync(ctx context.Context) (answer, error) { return a.syncBy(ctx, true) }

// syncBy brings the cluster to the targets, by kubectl's apply or by the server's.
func (a *argo) syncBy(ctx context.Context, server bool) (answer, error) {
	results, err := a.engine.Sync(ctx, a.targets(), isManaged, "revision", namespace,
		sync.WithPrune(true), sync.WithServerSideApply(server), sync.WithServerSideApplyManager(argoManager), sync.WithManifestValidation(true),
		sync.WithLogr(logr.Discard()))
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, result := range results {
		found[result.ResourceKey.Kind] = fmt.Sprintf("%s: %s", result.Status, result.Message)
	}
	return answer{"results": found, "asked": a.at.count.numbers()}, nil
}

// live is the cached state of the first target, once the cache has caught up with the server.
func (a *argo) live(ctx context.Context) (*unstructured.Unstructured, error) {
	target := a.targets()[0]
	served, err := a.kubectl.GetResource(ctx, a.at.config, shootState, target.GetName(), namespace)
	if err != nil {
		return nil, err
	}
	var live *unstructured.Unstructured
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		found, err := a.cache.GetManagedLiveObjs([]*unstructured.Unstructured{target}, isManaged)
		if err != nil {
			return false, err
		}
		live = found[kube.GetResourceKey(target)]
		return live != nil && live.GetResourceVersion() == served.GetResourceVersion(), nil
	})
	return live, err
}

func (a *argo) cached(ctx context.Context) (answer, error) {
	live, err := a.live(ctx)
	if err != nil {
		return nil, err
	}
	return answer{"live": live.Object}, nil
}

// diff is a structured merge diff by the published schema.
func (a *argo) diff(ctx context.Context) (answer, error) {
	return a.diffBy(ctx, diff.WithStructuredMergeDiff(true), diff.WithGVKParser(a.cache.GetGVKParser()), diff.WithManager(argoManager))
}

// serverDiff is by a dry run of apply on the server, without what webhooks change.
func (a *argo) serverDiff(ctx context.Context) (answer, error) {
	applier, cleanup, err := a.kubectl.ManageServerSideDiffDryRuns(a.at.config)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	return a.diffBy(ctx, diff.WithServerSideDiff(true), diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(applier)),
		diff.WithManager(argoManager), diff.WithGVKParser(a.cache.GetGVKParser()))
}

func (a *argo) diffBy(ctx context.Context, options ...diff.Option) (answer, error) {
	live, err := a.live(ctx)
	if err != nil {
		return nil, err
	}
	result, err := diff.Diff(a.targets()[0], live, append(options, diff.WithLogr(logr.Discard()))...)
	if err != nil {
		return nil, err
	}
	return answer{"modified": result.Modified, "predicted": string(result.PredictedLive), "asked": a.at.count.numbers()}, nil
}
