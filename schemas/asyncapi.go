package schemas

import _ "embed"

//go:embed asyncapi.yaml
var asyncAPI string

// AsyncAPI returns the contract as an AsyncAPI 3.0 document in YAML, for other languages than Go.
func AsyncAPI() string { return asyncAPI }
