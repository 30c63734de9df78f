//go:build race

package inventory_test

// raceDetector says that the tests run under the race detector, several times slower and with more
// memory: those that are about numbers do with fewer, and those about memory with none.
const raceDetector = true
