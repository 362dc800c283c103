package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
)

const cloudTimeout = 10 * time.Second

// client calls the cloud. Its errors carry the codes that the machine controller acts on.
type client struct {
	url  string
	by   string
	http http.Client
}

func newClient(address, by string) *client {
	return &client{url: address, by: by, http: http.Client{Timeout: cloudTimeout}}
}

func (c *client) list(ctx context.Context) ([]VM, error) {
	var vms []VM
	err := c.call(ctx, http.MethodGet, "/vms", nil, &vms)
	return vms, err
}

func (c *client) create(ctx context.Context, vm VM) (VM, error) {
	vm.By = c.by
	body, err := json.Marshal(vm)
	if err != nil {
		return VM{}, status.Error(codes.Internal, err.Error())
	}
	var created VM
	err = c.call(ctx, http.MethodPost, "/vms", body, &created)
	return created, err
}

func (c *client) delete(ctx context.Context, id string) error {
	query := url.Values{"id": {id}, "by": {c.by}}
	return c.call(ctx, http.MethodDelete, "/vms?"+query.Encode(), nil, nil)
}

func (c *client) call(ctx context.Context, method, path string, body []byte, result any) error {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	response, err := c.http.Do(request)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	switch {
	case response.StatusCode == http.StatusNotFound:
		return status.Error(codes.NotFound, string(text))
	case response.StatusCode >= 300:
		return status.Error(codes.Internal, fmt.Sprintf("%s %s: %s: %s", method, path, response.Status, text))
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(text, result); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}
