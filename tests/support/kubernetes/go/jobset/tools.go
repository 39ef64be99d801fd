//go:build tools

// Package jobset only says which version of the controller is built: `go build sigs.k8s.io/jobset` here.
package jobset

import _ "sigs.k8s.io/jobset"
