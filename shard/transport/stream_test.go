package transport

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAcceptAfterCloseMayBeRepeated as raft does that is kept from running for 5 ms just then: both
// its reason to end and its pause before the next try are over, and it takes either.
func TestAcceptAfterCloseMayBeRepeated(t *testing.T) {
	node, err := Listen(Config{Listen: "127.0.0.1:0", Cluster: ClusterID{1}})
	require.NoError(t, err)
	defer node.Close()
	group, err := node.Open(1)
	require.NoError(t, err)
	require.NoError(t, group.Close())
	for range 3 {
		_, err := group.stream.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
	}
}
