package main

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPSP runs the provider as the command does, and tries what it says to try.
func TestPSP(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"psp", "--http", "127.0.0.1:0"}, out, io.Discard) }()
	greeting := make([]byte, 4096)
	n, err := said.Read(greeting)
	require.NoError(t, err)

	shell := strings.ReplaceAll(string(greeting[:n]), "\\\n", "")
	tried := regexp.MustCompile(`(?m)^  curl.*$`).FindAllString(shell, -1)
	require.Len(t, tried, 5)
	for _, command := range tried {
		output, err := exec.Command("sh", "-c", command+" -sS --fail").CombinedOutput()
		require.NoError(t, err, "%s: %s", command, output)
	}
	url := regexp.MustCompile(`http://\S+`).FindString(shell)
	response, err := http.Get(url + "/charges")
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Contains(t, string(body), `"status":"captured"`)

	stop()
	require.NoError(t, <-ended)
}
