//go:build tools

// Package trainer only says which version of the controller is built: `go build` of the import here.
package trainer

import _ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"
