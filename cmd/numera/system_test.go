package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/gateway/order/postgres/postgrestest"
)

// patience is how long a test waits for what must happen, on a machine with much else to do.
const patience = time.Minute

// childEnv tells this test binary to be numera: its processes can be killed like the real one.
const childEnv = "NUMERA_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Unsetenv(childEnv)
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, "numera:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(postgrestest.Run(m))
}

// system is a running `numera dev` in a process of its own, seen from outside.
type system struct {
	t       testing.TB
	process *exec.Cmd
	log     *bytes.Buffer
	url     string
	nats    string
	psp     string // the simulator
	client  *http.Client
}

const (
	adminToken   = "admin-token"
	serviceToken = "service-token"
)

var greeting = regexp.MustCompile(`(?m)^  (HTTP|NATS|paying) +(\S+)`)

// databases are the DSNs of the systems that have been started, by data directory: a restarted one
// finds its own again.
var databases = map[string]string{}

// startSystem starts `numera dev` over a data directory and waits until it is ready. Its PostgreSQL
// is that of all tests unless the flags name one.
func startSystem(t testing.TB, dir string, flags ...string) *system {
	t.Helper()
	s := &system{t: t, log: &bytes.Buffer{}, client: &http.Client{
		Timeout:   patience,
		Transport: &http.Transport{MaxIdleConnsPerHost: 256},
	}}
	arguments := append([]string{
		"dev", "--data", dir, "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--shards", "4",
		"--admin-token", adminToken, "--service-token", serviceToken,
	}, flags...)
	if !slices.Contains(flags, "--postgres") {
		if databases[dir] == "" {
			databases[dir] = postgrestest.DSN(t)
		}
		arguments = append(arguments, "--postgres", databases[dir])
	}
	s.process = exec.Command(os.Args[0], arguments...)
	s.process.Env = append(os.Environ(), childEnv+"=1")
	s.process.Stderr = s.log
	out, err := s.process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.process.Start())
	t.Cleanup(func() { s.process.Process.Kill() })
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "Ctrl-C") {
		m := greeting.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		switch m[1] {
		case "HTTP":
			s.url = m[2]
		case "NATS":
			s.nats = m[2]
		default:
			s.psp = m[2]
		}
	}
	if s.url == "" || s.nats == "" {
		s.process.Wait()
		t.Fatalf("numera dev did not start:\n%s", s.log)
	}
	go io.Copy(io.Discard, out)
	return s
}

// kill ends the process as a power cut would end it, but for what the kernel still writes.
func (s *system) kill() {
	s.process.Process.Kill()
	s.process.Wait()
}

// stop ends it cleanly.
func (s *system) stop() {
	s.t.Helper()
	require.NoError(s.t, s.process.Process.Signal(syscall.SIGTERM))
	require.NoError(s.t, s.process.Wait(), s.log)
}

// reply is an answer over HTTP.
type reply struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

func (r *reply) code() string {
	code, _ := r.body["code"].(string)
	return code
}

// order is the order in the answer.
func (r *reply) order() map[string]any {
	order, _ := r.body["order"].(map[string]any)
	return order
}

// numbers are those of the answered order.
func (r *reply) numbers() []int {
	var numbers []int
	items, _ := r.order()["items"].([]any)
	for _, item := range items {
		for _, n := range item.(map[string]any)["numbers"].([]any) {
			numbers = append(numbers, int(n.(float64)))
		}
	}
	return numbers
}

// try makes a request; err means that there was no answer.
func (s *system) try(method, path, token, key, body string) (*reply, error) {
	request, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	r := &reply{status: answer.StatusCode, header: answer.Header, text: string(text)}
	json.Unmarshal(text, &r.body) // not every answer is JSON
	return r, nil
}

func (s *system) call(method, path, token, key, body string) *reply {
	s.t.Helper()
	r, err := s.try(method, path, token, key, body)
	require.NoError(s.t, err)
	return r
}

// product puts a product on sale; settings are more members of it.
func (s *system) product(id string, count int, settings string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"name":"x","price":{"amount":100,"currency":"BRL"},"count":%d%s}`, count, settings)
	r := s.call("PUT", "/v1/admin/products/"+id, adminToken, "", body)
	require.Equal(s.t, 201, r.status, r.text)
}

// reserve orders for a buyer, as a service does: with the same key until it has an answer.
func (s *system) reserve(key, buyer, items string) *reply {
	s.t.Helper()
	for until := time.Now().Add(patience); ; {
		r := s.call("POST", "/v1/orders", serviceToken, key,
			fmt.Sprintf(`{"buyer":%q,"items":[%s]}`, buyer, items))
		if r.status != http.StatusServiceUnavailable || time.Now().After(until) {
			return r
		}
	}
}

// counters of a product, uncached.
func (s *system) counters(id string) (c struct{ Count, Available, Reserved, Sold, Blocked int }) {
	s.t.Helper()
	r := s.call("GET", "/v1/admin/products/"+id, adminToken, "", "")
	require.Equal(s.t, 200, r.status, r.text)
	text, _ := json.Marshal(r.body["counters"])
	require.NoError(s.t, json.Unmarshal(text, &c))
	return c
}

// orders lists all orders of a product.
func (s *system) orders(id string) []map[string]any {
	s.t.Helper()
	var all []map[string]any
	for after := ""; ; {
		r := s.call("GET", "/v1/admin/products/"+id+"/orders?limit=1000"+after, adminToken, "", "")
		require.Equal(s.t, 200, r.status, r.text)
		for _, o := range r.body["orders"].([]any) {
			all = append(all, o.(map[string]any))
		}
		next, more := r.body["next"].(string)
		if !more {
			return all
		}
		after = "&after=" + next
	}
}
