// Command encryption is Kubernetes' own side of encryption at rest. A test starts it, tells it on standard input what to do, a line
// each, and gets for each line one line of JSON: {"ok": true, ...} or {"ok": false, "reason": "..."}.
//
//	encryption kms     a KMS v2 plugin of k8s.io/kms over a unix socket, with keys in memory
//	encryption config  reads configurations, seals and opens with the code of kube-apiserver
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"k8s.io/klog/v2"
)

// An answer is one line of output.
type answer map[string]any

// Commands take the words of a line.
type commands map[string]func(words []string) (answer, error)

func main() {
	klog.SetOutput(os.Stderr)
	roles := map[string]func(context.Context, []string) (commands, error){"kms": kms, "config": config}
	if len(os.Args) < 2 || roles[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: encryption kms|config [flags]")
		os.Exit(2)
	}
	known, err := roles[os.Args[1]](context.Background(), os.Args[2:])
	if err != nil {
		say(nil, err)
		os.Exit(1)
	}
	say(answer{}, nil)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || known[words[0]] == nil {
			say(nil, fmt.Errorf("unknown command %q", lines.Text()))
			continue
		}
		say(known[words[0]](words[1:]))
	}
}

func say(what answer, err error) {
	if err != nil {
		what = answer{"reason": err.Error()}
	}
	what["ok"] = err == nil
	line, err := json.Marshal(what)
	if err != nil {
		panic(err) // Answers hold numbers and strings only.
	}
	fmt.Println(string(line))
}

func socketFlag(args []string) (string, error) {
	flags := flag.NewFlagSet("kms", flag.ContinueOnError)
	socket := flags.String("socket", "", "where to listen")
	err := flags.Parse(args)
	return *socket, err
}
