//go:build race

package main

// idleConnections is less than the 8,128 goroutines that the race detector can follow.
const idleConnections = 5000
