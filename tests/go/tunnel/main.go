// Command tunnel is a load on everything for which a kube-apiserver calls into its cluster: webhooks, kubelets and aggregated APIs.
//
// It first prints a line of JSON that names its operations. Each of them runs once in each period; two long streams run all the
// time. Each line of standard input is a command, and the answer is a line of JSON: {"ok": true, ...} or {"ok": false, "reason": ...}.
//
//	stats   what has been done and what failed
//	stop    the same after the last operations have ended; then the program ends
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"
)

// An answer is one line of output.
type answer map[string]any

// settings are what the flags say.
type settings struct {
	kubeconfig, resolver, translation string
	namespace, pod, container         string
	webhookNamespace, aggregated      string
	period, deadline, reconnect       time.Duration
}

func (s *settings) register(flags *flag.FlagSet) {
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "how to reach the server")
	flags.StringVar(&s.resolver, "resolver", "", "the DNS server to ask, as host:port; empty for that of the machine")
	flags.StringVar(&s.translation, "translation", "", "with --resolver: addresses that stand for others, as 10.77=127.77")
	flags.StringVar(&s.namespace, "namespace", "default", "namespace of the Pod")
	flags.StringVar(&s.pod, "pod", "", "name of the Pod; empty for no operations on a Pod")
	flags.StringVar(&s.container, "container", "", "its container; empty for its only one")
	flags.StringVar(&s.webhookNamespace, "webhook-namespace", "", "namespace of the ConfigMaps that a webhook admits; empty for none")
	flags.StringVar(&s.aggregated, "aggregated", "", "path of a list in an aggregated API; empty for none")
	flags.DurationVar(&s.period, "period", 250*time.Millisecond, "from the start of an operation to its next one")
	flags.DurationVar(&s.deadline, "deadline", 10*time.Second, "the longest time for one operation")
	flags.DurationVar(&s.reconnect, "reconnect", 2*time.Second, "the longest time for which operations use one connection")
}

func main() {
	klog.SetOutput(os.Stderr)
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			say(answer{"ok": false, "reason": err.Error()})
		}
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("tunnel", flag.ContinueOnError)
	var s settings
	s.register(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	l, err := startLoad(context.Background(), s)
	if err != nil {
		return err
	}
	say(answer{"operations": l.names()})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch command := lines.Text(); command {
		case "stats":
			say(l.stats())
		case "stop":
			l.stop()
			say(l.stats())
			return nil
		default:
			say(answer{"ok": false, "reason": fmt.Sprintf("no such command: %q", command)})
		}
	}
	return lines.Err()
}

func say(what answer) {
	what["ok"] = what["ok"] != false
	line, err := json.Marshal(what)
	if err != nil {
		panic(err) // Answers hold numbers and strings only.
	}
	fmt.Println(string(line))
}
