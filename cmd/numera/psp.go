package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"numera/gateway/payment/simulator"
)

// pspCommand is a payment provider to try and to test with.
type pspCommand struct {
	HTTP          string   `name:"http" default:"127.0.0.1:8090" help:"Address of its API and its page. Port 0 picks one."`
	WebhookURL    string   `name:"webhook-url" help:"Where webhooks go, such as http://127.0.0.1:8080/v1/webhooks/default/simulator. Default: none."`
	WebhookSecret []string `name:"webhook-secret" default:"whsec_simulator" help:"Webhooks are signed with every one of these."`
	Account       string   `default:"acct_simulator" help:"Id of the account whose money it keeps."`
	Currency      string   `default:"BRL" help:"The only currency that it takes."`
	File          string   `type:"path" help:"Where it remembers charges. Default: it forgets them when it ends."`
}

// Run serves until ctx ends.
func (c *pspCommand) Run(ctx context.Context, s *streams) error {
	provider, err := simulator.New(simulator.Config{
		Account: c.Account, Currency: c.Currency, File: c.File,
		WebhookURL: c.WebhookURL, WebhookSecrets: c.WebhookSecret,
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.HTTP)
	if err != nil {
		return errors.Join(fmt.Errorf("%w: choose another address with --http", err), provider.Close())
	}
	server := simulatorServer(provider)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	c.greet(s, listener.Addr())
	select {
	case err = <-served:
	case <-ctx.Done():
		err = server.Close()
		<-served
	}
	return errors.Join(err, provider.Close())
}

// simulatorServer serves the simulator's API and its page.
func simulatorServer(provider *simulator.Server) *http.Server {
	return &http.Server{
		Handler: provider, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 2 * time.Minute, // calls hang when they are told to
		IdleTimeout:  2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
}

// greet says what to try.
func (c *pspCommand) greet(s *streams, at net.Addr) {
	webhooks := c.WebhookURL
	if webhooks == "" {
		webhooks = "none"
	}
	fmt.Fprintf(s.out, strings.TrimLeft(`
The payment simulator is ready.
  page      http://%[1]s   (pay a Pix by a click)
  account   %[2]s
  webhooks  %[3]s

Try, in another terminal: ask for a Pix, pay it, and see what was charged.
  curl http://%[1]s/v1/authorise -H 'Idempotency-Key: try-1' \
       -d '{"payment":"p-1","order":"o-1","method":"pix","amount":1990,"currency":"%[4]s"}'
  curl -X POST http://%[1]s/charges/p-1/pay
  curl http://%[1]s/charges

Have the next card declined, or the next answer lost after the charge took effect:
  curl http://%[1]s/faults -d '{"kind":"decline"}'
  curl http://%[1]s/faults -d '{"kind":"timeout_after","on":"authorise","times":1}'

Ctrl-C stops it.
`, "\n"), at, c.Account, webhooks, c.Currency)
}
