package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// patience is more than kube-apiserver's --request-timeout: every request ends with an answer of kube-apiserver.
const patience = 100 * time.Second

// A loader sends requests at a steady rate, whether earlier ones were answered or not: one half creates an object each, the other
// half reads one that was created.
type loader struct {
	at     *place
	client dynamic.ResourceInterface

	lock sync.Mutex
	// What "mark" said, or the start.
	since time.Time
	// Name -> sent and acknowledged.
	created map[string]bool
	last    string
	verbs   map[string]*outcomes
	pending sync.WaitGroup
	// When requests were sent that have no answer yet.
	waiting map[time.Time]bool
}

// outcomes are those of one verb. Times are counted from the mark.
type outcomes struct {
	Sent   int `json:"sent"`
	Failed int `json:"failed"`
	// When the first and the last request were sent that failed.
	FirstFailed float64 `json:"firstFailed"`
	LastFailed  float64 `json:"lastFailed"`
	// The longest time to an answer.
	SlowestFailure float64 `json:"slowestFailure"`
	SlowestSuccess float64 `json:"slowestSuccess"`
	// When the last request was sent whose answer took a second.
	LastSlow float64        `json:"lastSlow"`
	Reasons  map[string]int `json:"reasons"`
}

// load sends requests from the start, and does what standard input says until that ends:
//
//	mark     forget all outcomes so far; times count from now on
//	report   outcomes since the mark, and how many requests have waited for more than a second
//	verify   send no more, wait for all answers, and look for every object whose creation was acknowledged; outcomes since the mark
func load(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	var where placeFlags
	where.register(flags)
	pause := flags.Duration("pause", 50*time.Millisecond, "from one request to the next")
	if err := flags.Parse(args); err != nil {
		return err
	}
	at, err := where.open()
	if err != nil {
		return err
	}
	client, err := at.objects(nil)
	if err != nil {
		return err
	}
	l := &loader{at: at, client: client, created: map[string]bool{}, waiting: map[time.Time]bool{}}
	l.mark()
	ctx, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		l.send(ctx, *pause)
	}()
	say(answer{})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		say(l.do(lines.Text(), func() { stop(); <-stopped }))
	}
	stop()
	return lines.Err()
}

func (l *loader) do(command string, stop func()) answer {
	switch command {
	case "mark":
		l.mark()
		return answer{}
	case "report":
		return l.report()
	case "verify":
		stop()
		l.pending.Wait()
		if err := l.verify(); err != nil {
			return failed(err)
		}
		return l.report()
	default:
		return failed(fmt.Errorf("no such command: %q", command))
	}
}

func (l *loader) mark() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.since = time.Now()
	l.verbs = map[string]*outcomes{"create": {Reasons: map[string]int{}}, "get": {Reasons: map[string]int{}}}
}

func (l *loader) report() answer {
	l.lock.Lock()
	defer l.lock.Unlock()
	waiting := 0
	for sent := range l.waiting {
		if time.Since(sent) > time.Second {
			waiting++
		}
	}
	reply := answer{"seconds": time.Since(l.since).Seconds(), "waiting": waiting}
	for verb, found := range l.verbs {
		reply[verb] = *found
	}
	return reply
}

func (l *loader) send(ctx context.Context, pause time.Duration) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for number := 0; ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		l.pending.Add(1)
		go func() {
			defer l.pending.Done()
			if number%2 == 0 {
				l.create(number)
			} else {
				l.get()
			}
		}()
	}
}

func (l *loader) create(number int) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(l.at.kind)
	object.SetName(fmt.Sprintf("load-%d", number))
	object.SetNamespace(l.at.namespace)
	l.lock.Lock()
	l.created[object.GetName()] = false
	l.lock.Unlock()
	l.observe("create", func(ctx context.Context) error {
		_, err := l.client.Create(ctx, object, metav1.CreateOptions{})
		if err == nil {
			l.lock.Lock()
			l.created[object.GetName()] = true
			l.last = object.GetName()
			l.lock.Unlock()
		}
		return err
	})
}

func (l *loader) get() {
	l.lock.Lock()
	name := l.last
	l.lock.Unlock()
	if name == "" {
		return
	}
	l.observe("get", func(ctx context.Context) error {
		_, err := l.client.Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// numbers differ from failure to failure.
var numbers = regexp.MustCompile(`[0-9]+`)

func (l *loader) observe(verb string, request func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sent := time.Now()
	l.lock.Lock()
	l.waiting[sent] = true
	l.lock.Unlock()
	err := request(ctx)
	took := time.Since(sent).Seconds()
	l.lock.Lock()
	defer l.lock.Unlock()
	delete(l.waiting, sent)
	at := sent.Sub(l.since).Seconds()
	if at+took < 0 {
		return
	}
	found := l.verbs[verb]
	found.Sent++
	if took >= 1 {
		found.LastSlow = max(found.LastSlow, at)
	}
	if err == nil {
		found.SlowestSuccess = max(found.SlowestSuccess, took)
		return
	}
	if found.Failed == 0 || at < found.FirstFailed {
		found.FirstFailed = at
	}
	found.Failed++
	found.LastFailed = max(found.LastFailed, at)
	found.SlowestFailure = max(found.SlowestFailure, took)
	found.Reasons[numbers.ReplaceAllString(err.Error(), "N")]++
}

// verify finds every object whose creation was acknowledged, and none that nobody sent.
func (l *loader) verify() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list, err := l.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	there := map[string]bool{}
	for _, item := range list.Items {
		there[item.GetName()] = true
		if _, sent := l.created[item.GetName()]; !sent {
			return fmt.Errorf("nobody created %s", item.GetName())
		}
	}
	for name, acknowledged := range l.created {
		if acknowledged && !there[name] {
			return fmt.Errorf("the creation of %s was acknowledged, and it is not there", name)
		}
	}
	return nil
}
