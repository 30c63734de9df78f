package bench

import (
	"fmt"
)

func (v *venue) visit(c *Config) error { return fmt.Errorf("%w: not yet", ErrConfig) }

func (v *venue) serve(s *system, c *Config) error { return fmt.Errorf("%w: not yet", ErrConfig) }

func (v *venue) openHTTPFloor(c *Config) (peer, string, error) {
	return nil, "", fmt.Errorf("%w: not yet", ErrConfig)
}
