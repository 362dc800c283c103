package main

import (
	"maps"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// syncedStore knows whether it was ever filled.
type syncedStore struct {
	cache.Store
	filled atomic.Bool
}

func (s *syncedStore) Replace(items []any, version string) error {
	err := s.Store.Replace(items, version)
	s.filled.Store(true)
	return err
}

func (s *syncedStore) synced() bool { return s.filled.Load() }

func (s *syncedStore) copied() map[string]any {
	found := map[string]any{}
	for _, key := range s.ListKeys() {
		if object, there, _ := s.GetByKey(key); there {
			found[key] = object
		}
	}
	return found
}

// told is the copy that the handler of an informer makes.
type told struct {
	lock    sync.Mutex
	objects map[string]any
}

// OnAdd keeps the object.
func (t *told) OnAdd(object any, _ bool) { t.keep(object) }

// OnUpdate keeps the newer object.
func (t *told) OnUpdate(_, object any) { t.keep(object) }

// OnDelete drops the object.
func (t *told) OnDelete(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		panic(err) // Every API object has a name.
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	delete(t.objects, key)
}

func (t *told) keep(object any) {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		panic(err) // Every API object has a name.
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	t.objects[key] = object
}

func (t *told) copied() map[string]any {
	t.lock.Lock()
	defer t.lock.Unlock()
	return maps.Clone(t.objects)
}
