package simulator

import (
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"

	"numera/gateway/payment"
	"numera/gateway/payment/pix"
)

//go:embed page.html
var pageSource string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"money": func(minor int64) string { return fmt.Sprintf("%d.%02d", minor/100, minor%100) },
	"drawing": func(code string) (template.HTML, error) {
		svg, err := pix.SVG(code)
		return template.HTML(svg), err // drawn here, from text of our own
	},
	"canPay": func(s Statement) bool {
		return s.Status == payment.StatusPending || s.Method == payment.MethodPix && s.EndToEnd == ""
	},
	"canDecline": func(s Statement) bool {
		return s.Method == payment.MethodCard && s.Status == payment.StatusPending
	},
	"canLapse": func(s Statement) bool { return s.Status == payment.StatusAuthorised },
}).Parse(pageSource))

// pageLength is how many payments the page shows, the latest ones.
const pageLength = 50

// servePage is where a person is the buyer.
func (s *Server) servePage(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	latest := s.order[max(0, len(s.order)-pageLength):]
	var shown []Statement
	for _, l := range slices.Backward(latest) {
		shown = append(shown, s.statements(l)...)
	}
	total := len(s.charges)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, map[string]any{ // the reader has gone
		"Account": s.config.Account, "Charges": shown, "Total": total,
		"Faults": s.Faults(), "Deliveries": s.Deliveries(), "Webhooks": s.config.WebhookURL,
	})
}
