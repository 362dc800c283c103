package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"k8s.io/kms/pkg/service"
)

// A plugin keeps its keys in memory; each has an id, and one writes.
type plugin struct {
	mutex       sync.Mutex
	keys        map[string]cipher.AEAD
	current     string // The id that Status tells.
	encrypts    string // The id that Encrypt uses; differs from current only where a test says so.
	healthz     string
	version     string
	failing     map[string]bool
	delay       time.Duration
	annotations map[string][]byte
	padding     int
	garble      bool
	calls       map[string]int
}

// kms serves until the program ends. Commands:
//
//	key ID            makes a key where there is none, and writes with it from now on
//	status ID         tells another id in Status than Encrypt uses
//	forget ID         the key is destroyed
//	fail CALL...      status, encrypt, decrypt; none: all work again
//	healthz TEXT, version TEXT, delay DURATION, annotate NAME BYTES, pad BYTES, garble BOOL
//	calls             counts of calls since the last question
//	close, listen     the socket goes and comes back
func kms(_ context.Context, args []string) (commands, error) {
	socket, err := socketFlag(args)
	if err != nil {
		return nil, err
	}
	p := &plugin{keys: map[string]cipher.AEAD{}, healthz: "ok", version: "v2", failing: map[string]bool{}, calls: map[string]int{}}
	if _, err := p.key([]string{"1"}); err != nil {
		return nil, err
	}
	var server *service.GRPCService
	listen := func([]string) (answer, error) {
		server = service.NewGRPCService(socket, 10*time.Second, p)
		go server.ListenAndServe() //nolint:errcheck // Nobody can connect then, and the test sees that.
		for tries := 0; ; tries++ {
			connection, err := net.Dial("unix", socket)
			if err == nil {
				return answer{}, connection.Close()
			}
			if tries > 500 {
				return nil, err
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if _, err := listen(nil); err != nil {
		return nil, err
	}
	return commands{
		"key":      p.key,
		"forget":   p.change(func(words []string) { delete(p.keys, words[0]) }),
		"status":   p.change(func(words []string) { p.current = strings.Join(words, "") }),
		"healthz":  p.change(func(words []string) { p.healthz = words[0] }),
		"version":  p.change(func(words []string) { p.version = words[0] }),
		"garble":   p.change(func(words []string) { p.garble = words[0] == "true" }),
		"fail":     p.change(p.fail),
		"delay":    p.duration,
		"annotate": p.annotate,
		"pad":      p.pad,
		"calls":    p.counts,
		"close":    func([]string) (answer, error) { server.Close(); return answer{}, nil },
		"listen":   listen,
	}, nil
}

func (p *plugin) change(change func([]string)) func([]string) (answer, error) {
	return func(words []string) (answer, error) {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		change(words)
		return answer{}, nil
	}
}

func (p *plugin) fail(words []string) {
	p.failing = map[string]bool{}
	for _, word := range words {
		p.failing[word] = true
	}
}

func (p *plugin) key(words []string) (answer, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	id := words[0]
	p.current, p.encrypts = id, id
	if p.keys[id] != nil {
		return answer{}, nil
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	p.keys[id], err = cipher.NewGCMWithRandomNonce(block)
	return answer{}, err
}

func (p *plugin) duration(words []string) (answer, error) {
	delay, err := time.ParseDuration(words[0])
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.delay = delay
	return answer{}, err
}

func (p *plugin) annotate(words []string) (answer, error) {
	var size int
	if _, err := fmt.Sscan(words[1], &size); err != nil {
		return nil, err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.annotations = map[string][]byte{words[0]: make([]byte, size)}
	return answer{}, nil
}

func (p *plugin) pad(words []string) (answer, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	_, err := fmt.Sscan(words[0], &p.padding)
	return answer{}, err
}

func (p *plugin) counts([]string) (answer, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	said := answer{"status": p.calls["status"], "encrypt": p.calls["encrypt"], "decrypt": p.calls["decrypt"]}
	p.calls = map[string]int{}
	return said, nil
}

// begin counts a call, and fails or delays it where that was asked for. The mutex is held when it returns.
func (p *plugin) begin(call string) error {
	p.mutex.Lock()
	p.calls[call]++
	delay, failing := p.delay, p.failing[call]
	if delay > 0 {
		p.mutex.Unlock()
		time.Sleep(delay)
		p.mutex.Lock()
	}
	if failing {
		return errors.New("told to fail")
	}
	return nil
}

func (p *plugin) Status(context.Context) (*service.StatusResponse, error) {
	defer p.mutex.Unlock()
	if err := p.begin("status"); err != nil {
		return nil, err
	}
	return &service.StatusResponse{Version: p.version, Healthz: p.healthz, KeyID: p.current}, nil
}

func (p *plugin) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	defer p.mutex.Unlock()
	if err := p.begin("encrypt"); err != nil {
		return nil, err
	}
	sealed := p.keys[p.encrypts].Seal(nil, nil, data, []byte(p.encrypts))
	if p.garble {
		sealed[len(sealed)-1] ^= 1
	}
	sealed = append(sealed, make([]byte, p.padding)...)
	return &service.EncryptResponse{Ciphertext: sealed, KeyID: p.encrypts, Annotations: p.annotations}, nil
}

func (p *plugin) Decrypt(_ context.Context, _ string, request *service.DecryptRequest) ([]byte, error) {
	defer p.mutex.Unlock()
	if err := p.begin("decrypt"); err != nil {
		return nil, err
	}
	key := p.keys[request.KeyID]
	if key == nil {
		return nil, fmt.Errorf("no key %q", request.KeyID)
	}
	if len(request.Annotations) != len(p.annotations) && p.annotations != nil {
		return nil, errors.New("annotations are missing")
	}
	if len(request.Ciphertext) < 60 {
		return nil, errors.New("too short")
	}
	return key.Open(nil, nil, request.Ciphertext[:60], []byte(request.KeyID))
}
