//go:build !race

package main

const idleConnections = 10_000
