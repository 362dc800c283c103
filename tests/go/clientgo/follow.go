package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// A session is what `clientgo follow` holds between two lines of its input.
type session struct {
	followers []*follower
	writer    *writer
	recorder  *recorder
	deadline  time.Duration
}

// follow starts followers, says so when all have synced, and then does what standard input says until that ends:
//
//	write    start to write
//	rest     stop writing; tells how much was acknowledged
//	verify   wait until every follower equals a LIST and every acknowledged write was told by an event
//	stats    what each follower asked the server for
func follow(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("follow", flag.ContinueOnError)
	var where placeFlags
	where.register(flags)
	chosen := flags.String("modes", "list,watchlist", "how to follow, separated by commas; a mode may come several times")
	disturbed := flags.Bool("disturbed", false, "whether the server is disturbed on purpose, so that writes may fail")
	record := flags.Bool("record", true, "whether to record all events by a RetryWatcher")
	pause := flags.Duration("pause", 0, "from one write to the next")
	deadline := flags.Duration("deadline", 60*time.Second, "the longest wait")
	if err := flags.Parse(args); err != nil {
		return err
	}
	at, err := where.open()
	if err != nil {
		return err
	}
	s := &session{deadline: *deadline}
	if s.writer, err = newWriter(at, *disturbed); err != nil {
		return err
	}
	s.writer.pause = *pause
	if *record {
		if s.recorder, err = startRecorder(ctx, at); err != nil {
			return err
		}
	}
	if err := s.startFollowers(ctx, at, strings.Split(*chosen, ",")); err != nil {
		return err
	}
	say(answer{"followers": len(s.followers)})
	return s.obey(ctx)
}

func (s *session) startFollowers(ctx context.Context, at *place, chosen []string) error {
	for _, mode := range chosen {
		f, err := newFollower(mode, at)
		if err != nil {
			return err
		}
		s.followers = append(s.followers, f)
		go f.run(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	for _, f := range s.followers {
		synced := func(context.Context) (bool, error) { return f.synced(), nil }
		if err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, synced); err != nil {
			return fmt.Errorf("%s did not sync: %w", f.mode, err)
		}
	}
	return nil
}

func (s *session) obey(ctx context.Context) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		reply, err := s.do(ctx, lines.Text())
		if err != nil {
			reply = failed(err)
		}
		say(reply)
	}
	return lines.Err()
}

func (s *session) do(ctx context.Context, command string) (answer, error) {
	switch command {
	case "write":
		s.writer.start(ctx)
		return answer{}, nil
	case "rest":
		return s.writer.rest()
	case "verify":
		return s.verify(ctx)
	case "stats":
		return s.stats(), nil
	default:
		return nil, fmt.Errorf("no such command: %q", command)
	}
}

func (s *session) verify(ctx context.Context) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	items := map[string]int{}
	var behind []error
	for _, f := range s.followers {
		count, err := f.verify(ctx)
		behind = append(behind, err)
		items[f.mode] = count
	}
	// Which of them are behind tells where they are served.
	if err := errors.Join(behind...); err != nil {
		return nil, err
	}
	events := 0
	if s.recorder != nil {
		count, err := s.recorder.verify(ctx, s.writer)
		if err != nil {
			return nil, err
		}
		events = count
	}
	return answer{"items": items, "events": events}, nil
}

func (s *session) stats() answer {
	modes := map[string]any{}
	for _, f := range s.followers {
		modes[f.mode] = f.count.numbers()
	}
	return answer{"modes": modes}
}
