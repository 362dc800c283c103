// Command clients shows how libraries that others build on see Repot. A test starts it for one of them and names on standard input one
// step after the other; each gets one line of JSON: {"ok": true, ...} or {"ok": false, "reason": "..."}.
//
//	clients runtime   controller-runtime's client and cache
//	clients manager   a controller of controller-runtime, which reconciles EtcdBackups
//	clients flux      Flux's server-side apply manager
//	clients argo      Argo CD's gitops-engine
//	clients velero    Velero's discovery and clients, called as its backups and restores call them
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

// An answer is one line of output.
type answer map[string]any

// A step is one thing that a library does.
type step func(context.Context) (answer, error)

// No step waits longer; the test that asked would give up soon after.
const stepDeadline = 90 * time.Second

func main() {
	libraries := map[string]func(context.Context, *place) (map[string]step, error){
		"runtime": newRuntime, "manager": newManager, "flux": newFlux, "argo": newArgo, "velero": newVelero,
	}
	if len(os.Args) < 2 || libraries[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: clients runtime|manager|flux|argo|velero --kubeconfig=FILE")
		os.Exit(2)
	}
	if err := serve(libraries[os.Args[1]], os.Args[2:]); err != nil {
		say(nil, err)
		os.Exit(1)
	}
}

func serve(library func(context.Context, *place) (map[string]step, error), args []string) error {
	flags := flag.NewFlagSet("clients", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	at, err := open(*kubeconfig)
	if err != nil {
		return err
	}
	ctx := context.Background()
	steps, err := library(ctx, at)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		take := steps[lines.Text()]
		if take == nil {
			return fmt.Errorf("there is no step %q", lines.Text())
		}
		say(within(ctx, take))
	}
	return nil
}

func within(ctx context.Context, take step) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, stepDeadline)
	defer cancel()
	return take(ctx)
}

func say(what answer, err error) {
	if what == nil {
		what = answer{}
	}
	what["ok"] = err == nil
	if err != nil {
		what["reason"] = err.Error()
	}
	line, err := json.Marshal(what)
	if err != nil {
		panic(err) // Answers hold what came as JSON, numbers and strings.
	}
	fmt.Println(string(line))
}
