package transport_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// authority issues the certificates of one cluster.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{certificate, key}
}

// issue returns what a node at ip is configured with.
func (a *authority) issue(t *testing.T, ip string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(ip)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
}

func TestTLSTellsPeersFromStrangers(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	to := open(t, listen(t, withTLS(ours.issue(t, "127.0.0.1"))), 7)
	roundTrip(t, open(t, listen(t, withTLS(ours.issue(t, "127.0.0.1"))), 7), to)

	nameless := ours.issue(t, "127.0.0.1")
	nameless.Certificates = nil
	believing := theirs.issue(t, "127.0.0.1") // believes us, and is not believed
	believing.RootCAs = ours.issue(t, "127.0.0.1").RootCAs
	for name, config := range map[string]*tls.Config{
		"plain":                      nil,
		"no certificate":             nameless,
		"another cluster's":          theirs.issue(t, "127.0.0.1"),
		"another cluster's, knowing": believing,
	} {
		t.Run(name, func(t *testing.T) {
			from := open(t, listen(t, withTLS(config)), 7)
			err := from.AppendEntries("to", to.LocalAddr(), heartbeat(),
				new(raft.AppendEntriesResponse))
			require.Error(t, err)
		})
	}

	impostor := open(t, listen(t, withTLS(ours.issue(t, "10.0.0.1"))), 7)
	from := open(t, listen(t, withTLS(ours.issue(t, "127.0.0.1"))), 7)
	err := from.AppendEntries("to", impostor.LocalAddr(), heartbeat(),
		new(raft.AppendEntriesResponse))
	require.ErrorContains(t, err, "certificate is valid for 10.0.0.1")
}
