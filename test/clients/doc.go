// Package clients generates clients of the API from its document, and reads schemas/asyncapi.yaml
// with AsyncAPI's own parser. Tools come from Go's module proxy, PyPI and npm when the tests run,
// and stay in the user's cache. Only NOTYET_LONG=1 runs them.
package clients
