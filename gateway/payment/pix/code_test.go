package pix_test

import (
	"bytes"
	"image/png"
	"strings"
	"testing"

	qr "github.com/piglig/go-qr"
	"github.com/stretchr/testify/require"

	"numera/gateway/payment/pix"
)

// manualCode is the example of the Banco Central's manual of BR Codes, checksum and all.
const manualCode = "00020126580014br.gov.bcb.pix0136123e4567-e12b-12d1-a456-426655440000" +
	"5204000053039865802BR5913Fulano de Tal6008BRASILIA62070503***63041D3D"

var dynamicCode = pix.Code{
	Location: "pix.example.com/qr/v2/9d36b84fc70b478fb95c12729b90ca25", AmountCents: 1990,
	Name: "NUMERA", City: "SAO PAULO", TxID: "",
}

func TestTextIsTheManualsExample(t *testing.T) {
	text, err := pix.Code{
		Key: "123e4567-e12b-12d1-a456-426655440000", Name: "Fulano de Tal", City: "BRASILIA",
	}.Text()
	require.NoError(t, err)
	require.Equal(t, manualCode, text)
}

// TestTextOfOnePayment is a dynamic code, field by field.
func TestTextOfOnePayment(t *testing.T) {
	text, err := dynamicCode.Text()
	require.NoError(t, err)
	require.Equal(t, "000201"+"010212"+
		"2676"+"0014br.gov.bcb.pix"+"2554pix.example.com/qr/v2/9d36b84fc70b478fb95c12729b90ca25"+
		"52040000"+"5303986"+"540519.90"+"5802BR"+"5906NUMERA"+"6009SAO PAULO"+"62070503***"+"6304",
		text[:len(text)-4])
}

func TestParseReadsWhatTextWrites(t *testing.T) {
	for _, code := range []pix.Code{
		dynamicCode,
		{Key: "+5511999999999", Name: "N", City: "C", TxID: "rifa1", AmountCents: 1},
		{
			Key: "k", Name: strings.Repeat("N", 25), City: strings.Repeat("C", 15),
			AmountCents: 123_456_789_00,
		},
	} {
		text, err := code.Text()
		require.NoError(t, err)
		read, err := pix.Parse(text)
		require.NoError(t, err)
		require.Equal(t, code, read)
	}
}

// TestParseRefusesAnyOneCharacterChanged is what the checksum is for.
func TestParseRefusesAnyOneCharacterChanged(t *testing.T) {
	text, err := dynamicCode.Text()
	require.NoError(t, err)
	for i := range text {
		changed := []byte(text)
		changed[i] ^= 1
		_, err := pix.Parse(string(changed))
		require.ErrorIs(t, err, pix.ErrInvalid, "character %d", i)
		_, err = pix.Parse(text[:i])
		require.ErrorIs(t, err, pix.ErrInvalid, "cut at %d", i)
	}
}

func TestTextRefusesWhatNoCodeCanSay(t *testing.T) {
	for name, spoil := range map[string]func(*pix.Code){
		"no receiver":       func(c *pix.Code) { c.Location = "" },
		"two receivers":     func(c *pix.Code) { c.Key = "k" },
		"location's scheme": func(c *pix.Code) { c.Location = "https://" + c.Location },
		"long location":     func(c *pix.Code) { c.Location = strings.Repeat("l", 78) },
		"negative amount":   func(c *pix.Code) { c.AmountCents = -1 },
		"no name":           func(c *pix.Code) { c.Name = "" },
		"accents":           func(c *pix.Code) { c.City = "SÃO PAULO" },
		"long city":         func(c *pix.Code) { c.City = "SAO JOSE DOS CAMPOS" },
		"txid":              func(c *pix.Code) { c.TxID = "p-1" },
	} {
		code := dynamicCode
		spoil(&code)
		_, err := code.Text()
		require.ErrorIs(t, err, pix.ErrInvalid, name)
	}
}

func TestDrawingsHoldTheText(t *testing.T) {
	bitmap, err := pix.PNG(manualCode)
	require.NoError(t, err)
	image, err := png.Decode(bytes.NewReader(bitmap))
	require.NoError(t, err)
	text, err := qr.Decode(image)
	require.NoError(t, err)
	require.Equal(t, manualCode, text)

	svg, err := pix.SVG(manualCode)
	require.NoError(t, err)
	require.Contains(t, string(svg), "<svg")
	require.Less(t, len(svg), 20_000)
}

// FuzzParse holds Parse to: whatever it accepts can be written, and reads the same again.
func FuzzParse(f *testing.F) {
	f.Add(manualCode)
	f.Fuzz(func(t *testing.T, text string) {
		code, err := pix.Parse(text)
		if err != nil {
			require.ErrorIs(t, err, pix.ErrInvalid)
			return
		}
		written, err := code.Text()
		require.NoError(t, err)
		again, err := pix.Parse(written)
		require.NoError(t, err)
		require.Equal(t, code, again)
	})
}
