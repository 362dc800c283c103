// Command mcm is the machine controller of Gardener's machine-controller-manager for a cloud that counts what it is asked for.
//
// Usage:
//
//	mcm cloud --address 127.0.0.1:PORT
//	mcm run --cloud http://ADDRESS --by NAME [flags of the machine controller]
//
// "cloud" keeps virtual machines in memory and serves them as JSON. "run" is the library's controller of Machines with a driver
// for that cloud. The controllers of MachineDeployments and MachineSets are the unchanged program machine-controller-manager.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mcm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("a subcommand is missing: cloud or run")
	}
	switch args[0] {
	case "cloud":
		return serveCloud(args[1:])
	case "run":
		return runController(args[1:])
	}
	return fmt.Errorf("unknown subcommand %q: use cloud or run", args[0])
}
