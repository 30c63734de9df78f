package simulator

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"numera/gateway/payment"
)

// SignatureHeader carries t=SECONDS and a v1=HEX for each secret: the HMAC-SHA256 of "t.body", as
// Stripe does it.
const SignatureHeader = "Psp-Signature"

// tolerance of a signature's age, both ways.
const tolerance = 300 * time.Second

// Sign is the header's value for a body that is sent at a time.
func Sign(secrets []string, at time.Time, body []byte) string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	value := "t=" + stamp
	for _, secret := range secrets {
		value += ",v1=" + hex.EncodeToString(signature(secret, stamp, body))
	}
	return value
}

func signature(secret, stamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// verify accepts a header in which one signature is by one of the secrets.
func verify(secrets []string, header string, body []byte, now time.Time) error {
	var stamp string
	var signatures [][]byte
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "t":
			stamp = value
		case "v1":
			if s, err := hex.DecodeString(value); err == nil {
				signatures = append(signatures, s)
			}
		}
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: no time", payment.ErrSignature)
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return fmt.Errorf("%w: %v old", payment.ErrSignature, age)
	}
	for _, secret := range secrets {
		want := signature(secret, stamp, body)
		for _, s := range signatures {
			if hmac.Equal(s, want) {
				return nil
			}
		}
	}
	return payment.ErrSignature
}
