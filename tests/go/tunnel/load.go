package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"
)

// A load runs operations and streams until it is stopped.
type load struct {
	settings
	operations map[string]*record
	streams    map[string]*streamRecord
	// stopping ends loops between two operations.
	stopping context.Context
	stopAll  context.CancelFunc
	running  sync.WaitGroup
}

func startLoad(ctx context.Context, s settings) (*load, error) {
	l := &load{settings: s, operations: map[string]*record{}, streams: map[string]*streamRecord{}}
	l.stopping, l.stopAll = context.WithCancel(ctx)
	c, err := openCluster(s)
	if err != nil {
		return nil, err
	}
	operations, streams, err := c.everything()
	if err != nil {
		return nil, err
	}
	if len(operations) == 0 {
		return nil, errors.New("--pod, --webhook-namespace or --aggregated is required")
	}
	for name, do := range operations {
		record := &record{}
		l.operations[name] = record
		l.running.Go(func() { l.repeat(record, do) })
	}
	for name, follow := range streams {
		record := &streamRecord{last: time.Now()}
		l.streams[name] = record
		l.running.Go(func() { l.follow(record, follow) })
	}
	return l, nil
}

// repeat runs one operation in each period. One that takes longer than a period delays the next one.
func (l *load) repeat(record *record, do operation) {
	ticker := time.NewTicker(l.period)
	defer ticker.Stop()
	for number := 1; l.stopping.Err() == nil; number++ {
		began := time.Now()
		record.add(began, attempt(l.deadline, func(ctx context.Context) error { return do(ctx, number) }))
		select {
		case <-l.stopping.Done():
		case <-ticker.C:
		}
	}
}

// attempt runs an operation, until its deadline.
func attempt(deadline time.Duration, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	return abandon(context.WithValue(ctx, failKey{}, fail), do)
}

// abandon returns when the context ends, at the latest: client-go's SPDY does not heed a context while it waits for an answer.
func abandon(ctx context.Context, do func(ctx context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	select {
	case err := <-done:
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return cause
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// follow opens a stream again whenever it has ended.
func (l *load) follow(record *streamRecord, open stream) {
	defer record.finish()
	for l.stopping.Err() == nil {
		record.opening()
		err := l.open(record, open)
		if l.stopping.Err() != nil {
			return
		}
		record.ended(err)
		select {
		case <-l.stopping.Done():
		case <-time.After(l.period):
		}
	}
}

// open gives up a stream without a first line at the deadline. Later silence does not end a stream, as with kubectl.
func (l *load) open(record *streamRecord, open stream) error {
	ctx, cancel := context.WithCancelCause(l.stopping)
	defer cancel(nil)
	late := time.AfterFunc(l.deadline, func() {
		if record.isSilent() {
			cancel(fmt.Errorf("no line after %s", l.deadline))
		}
	})
	defer late.Stop()
	return abandon(ctx, func(ctx context.Context) error { return open(ctx, record.line) })
}

// stop returns after the current operations have ended, which takes no longer than their deadline.
func (l *load) stop() {
	l.stopAll()
	l.running.Wait()
}

func (l *load) names() []string {
	names := []string{}
	for name := range l.operations {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func (l *load) stats() answer {
	operations, streams := answer{}, answer{}
	for name, record := range l.operations {
		operations[name] = record.numbers()
	}
	for name, record := range l.streams {
		streams[name] = record.numbers()
	}
	return answer{"operations": operations, "streams": streams}
}
