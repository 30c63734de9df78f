// Package pix reads and writes the text of a Pix QR code (the "BR Code": EMV's merchant-presented
// format as the Banco Central do Brasil profiles it) and draws it.
//
// The text is what a buyer copies into a bank's app, and what the QR code holds. It ends in a
// checksum, so a truncated or mistyped code is refused before money moves. [Parse] accepts exactly
// what [Code.Text] can write, plus fields that it does not know, which it passes over.
package pix

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrInvalid is returned when a text is not a Pix code, or a Code cannot be written as one.
var ErrInvalid = errors.New("pix: invalid code")

// Code is what a Pix code says. Exactly one of Key and Location is set. Texts are printable ASCII.
type Code struct {
	Key         string // static: the receiver's key, up to 77 characters
	Location    string // dynamic: where the bank reads the charge, without https://, up to 77
	AmountCents int64  // of BRL; 0: the payer chooses, or the charge at Location says
	Name        string // of the receiver, 1-25
	City        string // of the receiver, 1-15
	TxID        string // the receiver's reference, up to 25 letters and digits; "": none here
}

// Identifiers of EMV's fields, and of those in templates 26 and 62.
const (
	fieldFormat     = "00"
	fieldInitiation = "01"
	fieldAccount    = "26"
	fieldCategory   = "52"
	fieldCurrency   = "53"
	fieldAmount     = "54"
	fieldCountry    = "58"
	fieldName       = "59"
	fieldCity       = "60"
	fieldAdditional = "62"
	fieldChecksum   = "63"

	accountDomain   = "00"
	accountKey      = "01"
	accountLocation = "25"
	additionalTxID  = "05"

	domain   = "br.gov.bcb.pix"
	once     = "12" // initiation: a dynamic code, for one payment
	noTxID   = "***"
	maxCents = 999_999_999_999 // 13 characters with the point
)

// Text is the code as one line of ASCII, at most 512 characters, checksum included.
func (c Code) Text() (string, error) {
	if err := c.validate(); err != nil {
		return "", err
	}
	account := field(accountDomain, domain)
	initiation := ""
	if c.Location != "" {
		account += field(accountLocation, c.Location)
		initiation = field(fieldInitiation, once)
	} else {
		account += field(accountKey, c.Key)
	}
	amount := ""
	if c.AmountCents > 0 {
		amount = field(fieldAmount, fmt.Sprintf("%d.%02d", c.AmountCents/100, c.AmountCents%100))
	}
	txid := c.TxID
	if txid == "" {
		txid = noTxID
	}
	text := field(fieldFormat, "01") + initiation + field(fieldAccount, account) +
		field(fieldCategory, "0000") + field(fieldCurrency, "986") + amount +
		field(fieldCountry, "BR") + field(fieldName, c.Name) + field(fieldCity, c.City) +
		field(fieldAdditional, field(additionalTxID, txid)) + fieldChecksum + "04"
	return text + checksum(text), nil
}

func field(id, value string) string { return fmt.Sprintf("%s%02d%s", id, len(value), value) }

func (c Code) validate() error {
	switch {
	case (c.Key == "") == (c.Location == ""):
		return fmt.Errorf("%w: one of key and location", ErrInvalid)
	case !printable(c.Key, 0, 77):
		return fmt.Errorf("%w: key", ErrInvalid)
	case !printable(c.Location, 0, 77) || strings.Contains(c.Location, "://"):
		return fmt.Errorf("%w: location", ErrInvalid)
	case c.AmountCents < 0 || c.AmountCents > maxCents:
		return fmt.Errorf("%w: amount", ErrInvalid)
	case !printable(c.Name, 1, 25):
		return fmt.Errorf("%w: name", ErrInvalid)
	case !printable(c.City, 1, 15):
		return fmt.Errorf("%w: city", ErrInvalid)
	case !alphanumeric(c.TxID, 25):
		return fmt.Errorf("%w: txid", ErrInvalid)
	}
	return nil
}

func printable(s string, least, most int) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) >= least && len(s) <= most
}

func alphanumeric(s string, most int) bool {
	for i := range len(s) {
		c := s[i] | 0x20 // lower case
		if (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return len(s) <= most
}

// Parse reads a code and checks it whole: structure, checksum, currency and country.
func Parse(text string) (Code, error) {
	if len(text) < 8 || len(text) > 512 {
		return Code{}, fmt.Errorf("%w: length", ErrInvalid)
	}
	body, sum := text[:len(text)-4], text[len(text)-4:]
	if !strings.HasSuffix(body, fieldChecksum+"04") || !strings.EqualFold(sum, checksum(body)) {
		return Code{}, fmt.Errorf("%w: checksum", ErrInvalid)
	}
	fields, err := split(text)
	if err != nil {
		return Code{}, err
	}
	account, err := split(fields[fieldAccount])
	if err != nil {
		return Code{}, err
	}
	additional, err := split(fields[fieldAdditional])
	if err != nil {
		return Code{}, err
	}
	switch {
	case fields[fieldFormat] != "01":
		return Code{}, fmt.Errorf("%w: format", ErrInvalid)
	case !strings.EqualFold(account[accountDomain], domain):
		return Code{}, fmt.Errorf("%w: not a Pix account", ErrInvalid)
	case fields[fieldCurrency] != "986" || fields[fieldCountry] != "BR":
		return Code{}, fmt.Errorf("%w: not in reais", ErrInvalid)
	}
	cents, err := parseAmount(fields[fieldAmount])
	if err != nil {
		return Code{}, err
	}
	c := Code{
		Key: account[accountKey], Location: account[accountLocation], AmountCents: cents,
		Name: fields[fieldName], City: fields[fieldCity], TxID: additional[additionalTxID],
	}
	if c.TxID == noTxID {
		c.TxID = ""
	}
	return c, c.validate()
}

// split cuts a sequence of fields, each two digits of identifier, two of length and the value.
func split(s string) (map[string]string, error) {
	fields := make(map[string]string)
	for s != "" {
		if len(s) < 4 {
			return nil, fmt.Errorf("%w: cut short", ErrInvalid)
		}
		length, err := strconv.ParseUint(s[2:4], 10, 8)
		if err != nil || int(length) > len(s)-4 {
			return nil, fmt.Errorf("%w: length of field %q", ErrInvalid, s[:2])
		}
		if _, twice := fields[s[:2]]; twice {
			return nil, fmt.Errorf("%w: field %q twice", ErrInvalid, s[:2])
		}
		fields[s[:2]] = s[4 : 4+length]
		s = s[4+length:]
	}
	return fields, nil
}

// parseAmount reads reais with or without cents into cents. "" is 0.
func parseAmount(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	reais, cents, _ := strings.Cut(s, ".")
	digits := reais + (cents + "00")[:2]
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || reais == "" || len(cents) > 2 || len(s) > 13 {
		return 0, fmt.Errorf("%w: amount", ErrInvalid)
	}
	return int64(n), nil
}

// checksum is the CRC-16 of EMV (polynomial 1021, initially FFFF) in four capital digits.
func checksum(s string) string {
	crc := uint16(0xFFFF)
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return fmt.Sprintf("%04X", crc)
}
