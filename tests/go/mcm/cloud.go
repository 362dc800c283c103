package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sort"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

// VM is a virtual machine of the cloud.
type VM struct {
	// ProviderID is unique for ever: an ID is never given twice.
	ProviderID string `json:"providerID"`
	// Name is the name of the Machine and of the Node. As in most clouds, it is not unique.
	Name string `json:"name"`
	// Cluster is the technical ID of the Shoot, from the MachineClass.
	Cluster string `json:"cluster"`
	// Class is the name of the MachineClass.
	Class string `json:"class"`
	// Zone is the one of the MachineClass; it is empty where that has none.
	Zone string `json:"zone"`
	// UserData is what the Secret of the MachineClass has for the machine.
	UserData string `json:"userData"`
	// By is the name of the controller that asked for the VM.
	By string `json:"by"`
}

// Counters say what the cloud was asked for since it was started. They never fall.
type Counters struct {
	Created   int            `json:"created"`
	Deleted   int            `json:"deleted"`
	CreatedBy map[string]int `json:"createdBy"`
	DeletedBy map[string]int `json:"deletedBy"`
	// By the technical ID of the Shoot.
	CreatedIn map[string]int `json:"createdIn"`
	DeletedIn map[string]int `json:"deletedIn"`
}

type cloud struct {
	mutex    sync.Mutex
	vms      map[string]VM
	counters Counters
}

func newCloud() *cloud {
	counters := Counters{
		CreatedBy: map[string]int{}, DeletedBy: map[string]int{},
		CreatedIn: map[string]int{}, DeletedIn: map[string]int{},
	}
	return &cloud{vms: map[string]VM{}, counters: counters}
}

func serveCloud(args []string) error {
	flags := pflag.NewFlagSet("cloud", pflag.ContinueOnError)
	address := flags.String("address", "", "host and port to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return fmt.Errorf("failed to listen on %q: %w", *address, err)
	}
	server := http.Server{Handler: newCloud().handler(), ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(listener)
}

func (c *cloud) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /vms", func(w http.ResponseWriter, r *http.Request) { answer(w, http.StatusOK, c.list()) })
	mux.HandleFunc("POST /vms", c.create)
	mux.HandleFunc("DELETE /vms", c.delete)
	mux.HandleFunc("GET /counters", c.count)
	return mux
}

// list returns all VMs in the order of their provider IDs.
func (c *cloud) list() []VM {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	vms := make([]VM, 0, len(c.vms))
	for _, vm := range c.vms {
		vms = append(vms, vm)
	}
	sort.Slice(vms, func(i, j int) bool { return vms[i].ProviderID < vms[j].ProviderID })
	return vms
}

// create makes a VM each time it is called, also for a name that another VM has.
func (c *cloud) create(w http.ResponseWriter, r *http.Request) {
	var vm VM
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&vm); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.counters.Created++
	c.counters.CreatedBy[vm.By]++
	c.counters.CreatedIn[vm.Cluster]++
	vm.ProviderID = fmt.Sprintf("counting:///eu/i-%06d", c.counters.Created)
	c.vms[vm.ProviderID] = vm
	answer(w, http.StatusCreated, vm)
}

// delete removes the VM of the query parameter "id". A VM that does not exist is not counted.
func (c *cloud) delete(w http.ResponseWriter, r *http.Request) {
	id, by := r.URL.Query().Get("id"), r.URL.Query().Get("by")
	c.mutex.Lock()
	defer c.mutex.Unlock()
	vm, exists := c.vms[id]
	if !exists {
		http.Error(w, fmt.Sprintf("there is no VM %q", id), http.StatusNotFound)
		return
	}
	delete(c.vms, id)
	c.counters.Deleted++
	c.counters.DeletedBy[by]++
	c.counters.DeletedIn[vm.Cluster]++
	w.WriteHeader(http.StatusNoContent)
}

func (c *cloud) count(w http.ResponseWriter, _ *http.Request) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	answer(w, http.StatusOK, c.counters)
}

func answer(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// A client that is gone needs no answer.
	_ = json.NewEncoder(w).Encode(value)
}
