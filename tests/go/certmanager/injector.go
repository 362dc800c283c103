package main

import (
	"context"
	"errors"
	"fmt"

	certificates "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	core "k8s.io/api/core/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	registration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// startInjector runs the cainjector for APIServices and webhook configurations, as cert-manager's chart does.
func startInjector(ctx context.Context, kubeconfig string, failed chan<- error) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "cert-manager-cainjector"
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, certificates.AddToScheme, extensions.AddToScheme, registration.AddToScheme,
	} {
		if err := add(kinds); err != nil {
			return err
		}
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  kinds,
		Metrics: server.Options{BindAddress: "0"},
		// Only metadata of Secrets is watched. A cached copy could be older than the change that was told.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&core.Secret{}}}},
	})
	if err != nil {
		return err
	}
	options := cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.APIServiceName:                     true,
			cainjector.MutatingWebhookConfigurationName:   true,
			cainjector.ValidatingWebhookConfigurationName: true,
		},
	}
	if err := cainjector.RegisterAllInjectors(ctx, manager, options); err != nil {
		return err
	}
	go func() { failed <- fmt.Errorf("it ended: %w", manager.Start(ctx)) }()
	if !manager.GetCache().WaitForCacheSync(ctx) {
		return errors.New("caches are not filled")
	}
	return nil
}
