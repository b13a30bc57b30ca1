package schemas

import _ "embed"

//go:embed asyncapi.yaml
var asyncAPI string

// AsyncAPI returns the contract as an AsyncAPI 3.0 document in YAML, for programs that are not in
// Go.
func AsyncAPI() string { return asyncAPI }
