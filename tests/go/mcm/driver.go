package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
)

// providerSpec is spec of a MachineClass: which cluster its VMs belong to.
type providerSpec struct {
	Cluster string `json:"cluster"`
}

// countingDriver makes and deletes VMs of the counting cloud for Machines. The name of the Node is that of the Machine.
type countingDriver struct {
	cloud *client
}

var _ driver.Driver = (*countingDriver)(nil)

func clusterOf(class *v1alpha1.MachineClass) (string, error) {
	var spec providerSpec
	if err := json.Unmarshal(class.ProviderSpec.Raw, &spec); err != nil || spec.Cluster == "" {
		message := fmt.Sprintf("MachineClass %s has no providerSpec.cluster: %v", class.Name, err)
		return "", status.Error(codes.InvalidArgument, message)
	}
	return spec.Cluster, nil
}

// find returns the VM of a Machine by its provider ID, or by its name while it has none.
func (d *countingDriver) find(ctx context.Context, machine *v1alpha1.Machine, class *v1alpha1.MachineClass) (VM, error) {
	cluster, err := clusterOf(class)
	if err != nil {
		return VM{}, err
	}
	vms, err := d.cloud.list(ctx)
	if err != nil {
		return VM{}, err
	}
	var found []VM
	for _, vm := range vms {
		same := vm.Name == machine.Name
		if machine.Spec.ProviderID != "" {
			same = vm.ProviderID == machine.Spec.ProviderID
		}
		if same && vm.Cluster == cluster {
			found = append(found, vm)
		}
	}
	switch len(found) {
	case 0:
		return VM{}, status.Error(codes.NotFound, fmt.Sprintf("there is no VM of Machine %s", machine.Name))
	case 1:
		return found[0], nil
	}
	// The controller collects orphans when it reads this code.
	return VM{}, status.Error(codes.OutOfRange, fmt.Sprintf("Machine %s has %d VMs", machine.Name, len(found)))
}

func (d *countingDriver) CreateMachine(ctx context.Context, request *driver.CreateMachineRequest) (*driver.CreateMachineResponse, error) {
	cluster, err := clusterOf(request.MachineClass)
	if err != nil {
		return nil, err
	}
	vm := VM{Name: request.Machine.Name, Cluster: cluster, Class: request.MachineClass.Name}
	if template := request.MachineClass.NodeTemplate; template != nil {
		vm.Zone = template.Zone
	}
	vm.UserData = string(request.Secret.Data["userData"])
	vm, err = d.cloud.create(ctx, vm)
	if err != nil {
		return nil, err
	}
	return &driver.CreateMachineResponse{ProviderID: vm.ProviderID, NodeName: vm.Name}, nil
}

func (d *countingDriver) InitializeMachine(context.Context, *driver.InitializeMachineRequest) (*driver.InitializeMachineResponse, error) {
	return nil, status.Error(codes.Unimplemented, "VMs of the counting cloud need no initialization")
}

func (d *countingDriver) DeleteMachine(ctx context.Context, request *driver.DeleteMachineRequest) (*driver.DeleteMachineResponse, error) {
	vm, err := d.find(ctx, request.Machine, request.MachineClass)
	if err != nil {
		return nil, err
	}
	if err := d.cloud.delete(ctx, vm.ProviderID); err != nil {
		return nil, err
	}
	return &driver.DeleteMachineResponse{}, nil
}

func (d *countingDriver) GetMachineStatus(ctx context.Context, request *driver.GetMachineStatusRequest) (*driver.GetMachineStatusResponse, error) {
	vm, err := d.find(ctx, request.Machine, request.MachineClass)
	if err != nil {
		return nil, err
	}
	return &driver.GetMachineStatusResponse{ProviderID: vm.ProviderID, NodeName: vm.Name}, nil
}

// ListMachines returns all VMs of the cluster, whatever their class: so do the drivers of most clouds, by a tag of the cluster.
// The controller deletes those that have no Machine.
func (d *countingDriver) ListMachines(ctx context.Context, request *driver.ListMachinesRequest) (*driver.ListMachinesResponse, error) {
	cluster, err := clusterOf(request.MachineClass)
	if err != nil {
		return nil, err
	}
	vms, err := d.cloud.list(ctx)
	if err != nil {
		return nil, err
	}
	machines := map[string]string{}
	for _, vm := range vms {
		if vm.Cluster == cluster {
			machines[vm.ProviderID] = vm.Name
		}
	}
	return &driver.ListMachinesResponse{MachineList: machines}, nil
}

func (d *countingDriver) GetVolumeIDs(context.Context, *driver.GetVolumeIDsRequest) (*driver.GetVolumeIDsResponse, error) {
	return &driver.GetVolumeIDsResponse{}, nil
}
