package main

import (
	"errors"

	_ "github.com/gardener/machine-controller-manager/pkg/util/client/metrics/prometheus"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/app"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/app/options"
	_ "github.com/gardener/machine-controller-manager/pkg/util/reflector/prometheus"
	_ "github.com/gardener/machine-controller-manager/pkg/util/workqueue/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
)

func runController(args []string) error {
	server := options.NewMCServer()
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	server.AddFlags(flags)
	cloud := flags.String("cloud", "", "URL of the counting cloud")
	by := flags.String("by", "", "name under which the cloud counts what this controller asks for")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *cloud == "" || *by == "" {
		return errors.New("the flags --cloud and --by are required")
	}
	logs.InitLogs()
	defer logs.FlushLogs()
	return app.Run(server, &countingDriver{cloud: newClient(*cloud, *by)})
}
