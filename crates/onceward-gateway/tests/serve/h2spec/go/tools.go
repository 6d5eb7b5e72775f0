//go:build tools

// Package tools names the program that the test compiles.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
