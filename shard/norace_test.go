//go:build !race

package shard

// raced says that the race detector is on, with which everything takes about ten times as long.
const raced = false
