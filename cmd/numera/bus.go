package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// bus is the NATS that the roles talk over. With a server of its own, what shards and gateways say
// to each other is in an account that nobody else can enter; callers from outside see the service
// numera and the stream numera-events.
type bus struct {
	server   *server.Server // nil when an existing one was joined
	url      string
	inside   string // url with the secret that the shards are reached by
	internal *nats.Conn
	public   *nats.Conn
}

// openBus starts the NATS server that c asks for, or joins one.
func openBus(c *devCommand, log *slog.Logger) (*bus, error) {
	b := &bus{url: c.NATSURL, inside: c.NATSURL}
	if b.url != "" {
		conn, err := b.connect("all", log)
		b.internal, b.public = conn, conn
		return b, err
	}
	inside := nats.UserInfo("shards", rand.Text())
	if err := b.start(c, inside); err != nil {
		return nil, err
	}
	in := nats.InProcessServer(b.server)
	var err error
	if b.internal, err = b.connect("shards", log, in, inside); err == nil {
		b.public, err = b.connect("service", log, in)
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bus) connect(name string, log *slog.Logger, options ...nats.Option) (*nats.Conn, error) {
	conn, err := nats.Connect(cmp.Or(b.url, nats.DefaultURL), append(options,
		nats.Name("numera "+name), nats.Timeout(connectPatience),
		nats.MaxReconnects(-1), nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("nats", "connection", name, "error", err)
		}))...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", b.url, err)
	}
	return conn, nil
}

// connectPatience is how long a connection may take to be made, and to say who it is: more than a
// machine takes on which everything starts at once.
const connectPatience = 10 * time.Second

// start runs a server with two accounts; only who knows inside enters the first.
func (b *bus) start(c *devCommand, inside nats.Option) error {
	host, text, err := net.SplitHostPort(c.NATS)
	if err != nil {
		return fmt.Errorf("--nats: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return fmt.Errorf("--nats: %q is not a port", text)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	var o nats.Options
	if err := inside(&o); err != nil {
		return err
	}
	shards, public := server.NewAccount("SHARDS"), server.NewAccount("PUBLIC")
	b.server, err = server.NewServer(&server.Options{
		ServerName: "numera", Host: host, Port: port, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: filepath.Join(c.Data, "nats"), SyncInterval: time.Second,
		Accounts: []*server.Account{shards, public},
		Users: []*server.User{
			{Username: o.User, Password: o.Password, Account: shards},
			{Username: "public", Account: public},
		},
		NoAuthUser: "public", AuthTimeout: connectPatience.Seconds(),
	})
	if err != nil {
		return fmt.Errorf("start NATS: %w", err)
	}
	b.server.Start()
	if !b.server.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("start NATS: nothing listens on %s: is another one running there? "+
			"Choose another address with --nats", c.NATS)
	}
	b.url = b.server.ClientURL()
	b.inside = "nats://" + o.User + ":" + o.Password + "@" + strings.TrimPrefix(b.url, "nats://")
	if public, err = b.server.LookupAccount(public.Name); err == nil { // the server made its own
		err = public.EnableJetStream(nil, nil)
	}
	if err != nil {
		return fmt.Errorf("start JetStream: %w", err)
	}
	return nil
}

func (b *bus) close() error {
	for _, conn := range []*nats.Conn{b.public, b.internal} {
		if conn != nil {
			conn.Close()
		}
	}
	if b.server != nil {
		b.server.Shutdown()
		b.server.WaitForShutdown()
	}
	return nil
}
