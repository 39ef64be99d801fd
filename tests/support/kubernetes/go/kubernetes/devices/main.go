// Command devices is a device plugin that tells the kubelet of devices that are not there:
//
//	devices /host/folder:/folder vpc.amazonaws.com/efa=4 nvidia.com/gpu=8
//
// A container that gets some finds their names in FAKE_EFA_DEVICES, FAKE_GPU_DEVICES, and the folders of the
// node that are named, as real plugins hand out drivers.
// It registers again whenever the kubelet starts anew, as the device plugins of AWS and NVIDIA do.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	resource string
	count    int
	mounts   []*api.Mount
}

func (p plugin) short() string { return path.Base(p.resource) }

func (p plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p plugin) PreStartContainer(context.Context, *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, nil
}

func (p plugin) GetPreferredAllocation(context.Context, *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	return &api.PreferredAllocationResponse{}, nil
}

func (p plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	var devices []*api.Device
	for number := range p.count {
		devices = append(devices, &api.Device{ID: fmt.Sprintf("%s-%d", p.short(), number), Health: api.Healthy})
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	given := &api.AllocateResponse{}
	name := "FAKE_" + strings.ToUpper(p.short()) + "_DEVICES"
	for _, container := range asked.ContainerRequests {
		env := map[string]string{name: strings.Join(container.DevicesIDs, ",")}
		response := &api.ContainerAllocateResponse{Envs: env, Mounts: p.mounts}
		given.ContainerResponses = append(given.ContainerResponses, response)
	}
	return given, nil
}

// serve is one life of the plugin: until the kubelet, which clears its folder when it starts, removes the socket.
func (p plugin) serve() error {
	name := "fake-" + p.short() + ".sock"
	socket := path.Join(api.DevicePluginPath, name)
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	kubelet, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: name, ResourceName: p.resource}
	if _, err := api.NewRegistrationClient(kubelet).Register(context.Background(), request); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(socket); err != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func main() {
	var mounts []*api.Mount
	for _, word := range os.Args[1:] {
		if host, container, folder := strings.Cut(word, ":"); folder {
			mounts = append(mounts, &api.Mount{HostPath: host, ContainerPath: container})
			continue
		}
		resource, text, _ := strings.Cut(word, "=")
		count, err := strconv.Atoi(text)
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			for {
				log.Print(plugin{resource, count, mounts}.serve())
				time.Sleep(200 * time.Millisecond)
			}
		}()
	}
	select {}
}
