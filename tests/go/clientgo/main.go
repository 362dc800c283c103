// Command clientgo shows how Kubernetes' own Go client sees the ShootState API. A test starts it, tells it on standard input what to do,
// a line each, and gets for each line one line of JSON: {"ok": true, ...} or {"ok": false, "reason": "..."}.
//
//	clientgo follow   informers and watches of every kind, and a writer: write, rest, verify, stats
//	clientgo load     requests at a steady rate, and how many of them failed, when and how: mark, report, verify
//	clientgo apply    one scenario of server-side apply with two managers; ends by itself
//	clientgo until    waits for one object with UntilWithSync; ends by itself
//	clientgo forms    compares what the metadata client gets in protobuf with the same in JSON; ends by itself
//	clientgo decode   compares, line by line, a document in JSON with the same in protobuf
//	clientgo goldens  prints what Go's own types make of documents in protobuf; needs no server and ends by itself
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
)

// An answer is one line of output.
type answer map[string]any

func main() {
	commands := map[string]func(context.Context, []string) error{
		"follow": follow, "load": load, "apply": apply, "until": until, "forms": forms, "decode": decode, "goldens": goldens,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: clientgo follow|load|apply|until|forms|decode|goldens [flags]; --help tells the flags of each")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](context.Background(), os.Args[2:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			say(failed(err))
		}
		os.Exit(1)
	}
}

func failed(err error) answer { return answer{"ok": false, "reason": err.Error()} }

func say(what answer) {
	what["ok"] = what["ok"] != false
	line, err := json.Marshal(what)
	if err != nil {
		panic(err) // Answers hold numbers and strings only.
	}
	fmt.Println(string(line))
}
