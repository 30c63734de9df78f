package stripe_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/gateway/payment"
	"numera/gateway/payment/stripe"
)

// startMock builds Stripe's own mock, which holds every request to Stripe's OpenAPI description,
// and runs it until the test ends. It keeps no state and answers with examples.
func startMock(t *testing.T) (url string) {
	folder := t.TempDir()
	install := exec.Command("go", "install", "github.com/stripe/stripe-mock@v0.203.0")
	install.Env = append(os.Environ(), "GOBIN="+folder, "GOFLAGS=")
	output, err := install.CombinedOutput()
	require.NoError(t, err, "%s", output)

	mock := exec.Command(filepath.Join(folder, "stripe-mock"),
		"-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	said, err := mock.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, mock.Start())
	t.Cleanup(func() {
		_ = mock.Process.Kill() // it may have ended, which the tests would have noticed
		_ = mock.Wait()
	})
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if at, is := strings.CutPrefix(lines.Text(), "Listening for HTTP at address: "); is {
			url = "http://" + at
		}
		if strings.HasPrefix(lines.Text(), "Listening for HTTPS") {
			break
		}
	}
	require.NotEmpty(t, url)
	return url
}

// TestStripeUnderstandsEveryRequest is about the wire only: what is asked for has the names and
// types that Stripe describes. What comes of it is the other tests' matter.
func TestStripeUnderstandsEveryRequest(t *testing.T) {
	url := startMock(t)
	p := stripe.New(stripe.Config{
		SecretKey: "sk_test_123", Account: "acct_1", URL: url,
		ReturnURL: "https://example.com/back",
	})
	defer p.Close()
	ctx := context.Background()
	known := payment.Reference{Payment: "p-1", Provider: "pi_123"}

	charge, err := p.Authorise(ctx, payment.Authorisation{
		Key: "k1", Payment: "p-1", Order: "o-1", Amount: payment.Money{Amount: 1990, Currency: "BRL"},
		Method: payment.MethodCard, CardToken: "pm_card_visa", Description: "Rifa",
	})
	require.NoError(t, err)
	require.NotEmpty(t, charge.Provider)
	require.Equal(t, payment.Money{Amount: 1990, Currency: "BRL"}, charge.Amount)
	require.NotEmpty(t, charge.Raw)

	_, err = p.Capture(ctx, payment.Capture{
		Key: "k2", Reference: known, Amount: payment.Money{Amount: 1990, Currency: "BRL"},
	})
	require.NoError(t, err)
	_, err = p.Void(ctx, payment.Void{Key: "k3", Reference: known})
	require.NoError(t, err)
	refund, err := p.Refund(ctx, payment.RefundRequest{
		Key: "k4", Refund: "r-1", Reference: known, Reason: "gave up",
		Amount: payment.Money{Amount: 90, Currency: "BRL"},
	})
	require.NoError(t, err)
	require.Equal(t, int64(90), refund.Amount.Amount)
	for _, reference := range []payment.Reference{known, {Payment: "p-1"}} {
		_, err = p.LookUp(ctx, reference)
		require.NoError(t, err)
	}

	refusing := stripe.New(stripe.Config{SecretKey: "none", URL: url})
	defer refusing.Close()
	_, err = refusing.LookUp(ctx, known)
	require.ErrorIs(t, err, payment.ErrRejected, "a wrong key")
}
