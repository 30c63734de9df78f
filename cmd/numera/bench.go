package main

import "errors"

// benchCommand loads the system.
type benchCommand struct{}

// Run measures.
func (*benchCommand) Run() error { return errors.New("not built") }
