// Package actionlint only says which version is built: `go build github.com/rhysd/actionlint/cmd/actionlint` here.
package actionlint

import _ "github.com/rhysd/actionlint"
