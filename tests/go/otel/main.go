// Command otel is a collector of traces: the OTLP receiver of the OpenTelemetry Collector, which keeps what it gets in memory. A test
// starts it, tells it on standard input what to do, a line each, and gets for each line one line of JSON: {"ok": true, ...} or
// {"ok": false, "reason": "..."}.
//
//	spans            all spans so far
//	contains WORD    whether a word stands anywhere in what was received
//
// It answers once without a command, when it listens.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

// An answer is one line of output.
type answer map[string]any

func main() {
	endpoint := flag.String("endpoint", "127.0.0.1:4317", "where to listen for OTLP over gRPC")
	flag.Parse()
	kept := &store{}
	if err := listen(context.Background(), *endpoint, kept); err != nil {
		say(nil, err)
		os.Exit(1)
	}
	say(answer{}, nil)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch {
		case word == "spans":
			say(answer{"spans": kept.spans()}, nil)
		case word == "contains" && rest != "":
			say(answer{"contains": kept.contains(rest)}, nil)
		default:
			say(nil, fmt.Errorf("unknown command %q", lines.Text()))
		}
	}
}

func listen(ctx context.Context, endpoint string, kept *store) error {
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	grpc := map[string]any{"endpoint": endpoint}
	given := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{"grpc": grpc}})
	if err := given.Unmarshal(config); err != nil {
		return err
	}
	traces, err := consumer.NewTraces(kept.add)
	if err != nil {
		return err
	}
	settings := receiver.Settings{
		ID:                component.NewID(factory.Type()),
		TelemetrySettings: componenttest.NewNopTelemetrySettings(),
	}
	server, err := factory.CreateTraces(ctx, settings, config, traces)
	if err != nil {
		return err
	}
	return server.Start(ctx, componenttest.NewNopHost())
}

func say(what answer, err error) {
	if err != nil {
		what = answer{"reason": err.Error()}
	}
	what["ok"] = err == nil
	line, err := json.Marshal(what)
	if err != nil {
		panic(err) // Attributes are strings, numbers and booleans.
	}
	fmt.Println(string(line))
}
