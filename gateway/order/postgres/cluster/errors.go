package cluster

import "errors"

// ErrProgramsMissing is returned when the machine has no PostgreSQL that can be used.
var ErrProgramsMissing = errors.New(
	"cluster: PostgreSQL is not installed: on Debian, apt-get install postgresql")

// ErrInUse is returned when another process runs PostgreSQL over the directory.
var ErrInUse = errors.New("cluster: another process uses the directory")
