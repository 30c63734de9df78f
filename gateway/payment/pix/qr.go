package pix

import (
	"fmt"

	qr "github.com/piglig/go-qr"
)

// SVG draws the text of a code as a QR code with a quiet zone, black on white.
func SVG(text string) ([]byte, error) {
	symbol, err := qr.EncodeText(text, qr.Medium)
	if err != nil {
		return nil, fmt.Errorf("pix: draw: %w", err)
	}
	svg, err := symbol.ToSVGBytes(qr.NewQrCodeImgConfig(8, 4, qr.WithOptimalSVG()))
	if err != nil {
		return nil, fmt.Errorf("pix: draw: %w", err)
	}
	return svg, nil
}

// PNG is SVG as a bitmap, 8 pixels a module.
func PNG(text string) ([]byte, error) {
	symbol, err := qr.EncodeText(text, qr.Medium)
	if err != nil {
		return nil, fmt.Errorf("pix: draw: %w", err)
	}
	png, err := symbol.ToPNGBytes(qr.NewQrCodeImgConfig(8, 4))
	if err != nil {
		return nil, fmt.Errorf("pix: draw: %w", err)
	}
	return png, nil
}
