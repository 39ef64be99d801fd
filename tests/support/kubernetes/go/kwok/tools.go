// Package kwok only says which version of kwok is built: `go build sigs.k8s.io/kwok/cmd/kwok` here.
package kwok

import _ "sigs.k8s.io/kwok/pkg/kwok/cmd"
