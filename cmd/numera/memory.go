package main

import (
	"os"
	"runtime/debug"
	"syscall"
)

// gcPercent lets the heap grow to five times what is live before it is collected: nearly all of
// what a request allocates is gone when it is answered, and collecting it took a tenth of the CPU
// at Go's default of 100. The limit brings the collector back in time when memory gets scarce.
const gcPercent = 400

// useMemory gives the process three quarters of the machine's memory to live in, unless the
// operator has said otherwise by Go's own GOGC and GOMEMLIMIT.
func useMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	var machine syscall.Sysinfo_t
	if os.Getenv("GOMEMLIMIT") == "" && syscall.Sysinfo(&machine) == nil {
		debug.SetMemoryLimit(int64(machine.Totalram * uint64(machine.Unit) / 4 * 3))
	}
}
