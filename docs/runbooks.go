// Package docs has the runbooks: the pages that alerts lead to.
package docs

import "embed"

// Runbooks has runbooks/NAME.md for each alert NAME.
//
//go:embed runbooks/*.md
var Runbooks embed.FS
