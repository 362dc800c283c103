package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	maxErrors  = 5
	timeFormat = "15:04:05.000Z"
)

// errorList keeps the first errors, because the others repeat them.
type errorList []string

func (e *errorList) add(since time.Time, err error) {
	if len(*e) < maxErrors {
		took := time.Since(since).Milliseconds()
		*e = append(*e, fmt.Sprintf("%s after %d ms: %v", time.Now().UTC().Format(timeFormat), took, err))
	}
}

func (e errorList) list() []string { return append([]string{}, e...) }

// A record is what one kind of operation has come to.
type record struct {
	mutex        sync.Mutex
	done, failed int
	longest      time.Duration
	firstErrors  errorList
}

func (r *record) add(began time.Time, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.longest = max(r.longest, time.Since(began))
	if err == nil {
		r.done++
		return
	}
	r.failed++
	r.firstErrors.add(began, err)
}

func (r *record) numbers() answer {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return answer{
		"done": r.done, "failed": r.failed, "longestMs": r.longest.Milliseconds(), "firstErrors": r.firstErrors.list(),
	}
}

// A streamRecord is what one kind of long stream has come to.
type streamRecord struct {
	mutex sync.Mutex
	// lines counts the lines of the current stream, and total those of all.
	lines, total int
	// broken counts streams that ended after a first line, and failed those that ended before one.
	broken, failed int
	opened, last   time.Time
	silence        time.Duration
	finished       bool
	firstErrors    errorList
}

func (r *streamRecord) opening() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.lines, r.opened = 0, time.Now()
}

// isSilent is whether the current stream has had no line.
func (r *streamRecord) isSilent() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.lines == 0
}

func (r *streamRecord) line() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.lines++
	r.total++
	now := time.Now()
	r.silence, r.last = max(r.silence, now.Sub(r.last)), now
}

func (r *streamRecord) ended(err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.lines > 0 {
		r.broken++
	} else {
		r.failed++
	}
	if err == nil {
		err = io.EOF
	}
	r.firstErrors.add(r.opened, err)
}

// finish ends the current silence, because nothing is to come.
func (r *streamRecord) finish() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.silence, r.finished = max(r.silence, time.Since(r.last)), true
}

// numbers include a silence that has not ended yet.
func (r *streamRecord) numbers() answer {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	longest := r.silence
	if !r.finished {
		longest = max(longest, time.Since(r.last))
	}
	return answer{
		"lines": r.total, "broken": r.broken, "failed": r.failed,
		"longestSilenceMs": longest.Milliseconds(), "firstErrors": r.firstErrors.list(),
	}
}
