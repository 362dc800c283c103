// Command certmanager runs cert-manager against one cluster: the controllers of Certificates, the issuers "selfSigned" and "ca", and
// the cainjector. All of them are cert-manager's own packages. The modules of its commands are not at the Go module proxy.
//
// Usage:
//
//	certmanager --kubeconfig FILE
//
// It prints "ready" when its caches are filled, and runs until it is killed. It elects no leader. Webhooks of cert-manager, which
// validate its objects beyond their schemas, are left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	err := run(context.Background(), os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "certmanager:", err)
	os.Exit(1)
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("certmanager", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "file that says where kube-apiserver is")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kubeconfig == "" {
		return errors.New("--kubeconfig is required")
	}
	ctrl.SetLogger(klog.Background())
	failed := make(chan error)
	if err := startControllers(ctx, *kubeconfig, failed); err != nil {
		return fmt.Errorf("controllers: %w", err)
	}
	if err := startInjector(ctx, *kubeconfig, failed); err != nil {
		return fmt.Errorf("cainjector: %w", err)
	}
	fmt.Println("ready")
	return <-failed
}
