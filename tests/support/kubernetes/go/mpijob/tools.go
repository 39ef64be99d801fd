// Package mpijob only says which version of the operator is built: `go build
// github.com/kubeflow/mpi-operator/cmd/mpi-operator` here.
package mpijob

import _ "github.com/kubeflow/mpi-operator/cmd/mpi-operator/app"
