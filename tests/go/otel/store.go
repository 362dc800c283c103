package main

import (
	"context"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// A span is what a test looks at. Times are in nanoseconds since 1970.
type span struct {
	Service    string         `json:"service"`
	Resource   map[string]any `json:"resource"`
	Scope      string         `json:"scope"`
	Name       string         `json:"name"`
	Kind       string         `json:"kind"`
	Trace      string         `json:"trace"`
	ID         string         `json:"id"`
	Parent     string         `json:"parent"`
	Status     string         `json:"status"`
	Start      uint64         `json:"start"`
	End        uint64         `json:"end"`
	Events     int            `json:"events"`
	Attributes map[string]any `json:"attributes"`
}

// A store keeps everything that was received.
type store struct {
	mutex    sync.Mutex
	received []ptrace.Traces
}

func (s *store) add(_ context.Context, traces ptrace.Traces) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	kept := ptrace.NewTraces()
	traces.CopyTo(kept)
	s.received = append(s.received, kept)
	return nil
}

func (s *store) spans() []span {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	all := []span{}
	for _, traces := range s.received {
		for _, resource := range traces.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, found := range scope.Spans().All() {
					all = append(all, read(resource.Resource(), scope.Scope(), found))
				}
			}
		}
	}
	return all
}

func read(resource pcommon.Resource, scope pcommon.InstrumentationScope, found ptrace.Span) span {
	service := ""
	if name, ok := resource.Attributes().Get("service.name"); ok {
		service = name.AsString()
	}
	return span{
		Service:    service,
		Resource:   resource.Attributes().AsRaw(),
		Scope:      scope.Name(),
		Name:       found.Name(),
		Kind:       found.Kind().String(),
		Trace:      found.TraceID().String(),
		ID:         found.SpanID().String(),
		Parent:     found.ParentSpanID().String(),
		Status:     found.Status().Code().String(),
		Start:      uint64(found.StartTimestamp()),
		End:        uint64(found.EndTimestamp()),
		Events:     found.Events().Len(),
		Attributes: found.Attributes().AsRaw(),
	}
}

// contains looks through all of it, in the JSON form of OTLP.
func (s *store) contains(word string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var marshaler ptrace.JSONMarshaler
	for _, traces := range s.received {
		text, err := marshaler.MarshalTraces(traces)
		if err != nil || strings.Contains(string(text), word) {
			return true
		}
	}
	return false
}
