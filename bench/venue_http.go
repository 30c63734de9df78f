package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/go-json-experiment/json"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/valyala/fasthttp"

	"numera/engine/inventory"
	"numera/gateway"
)

// The tokens of a system in this process, which nobody else reaches.
const (
	ownServiceToken = "bench-service"
	ownAdminToken   = "bench-admin"
)

// serve adds a gateway with HTTP to a system in this process.
func (v *venue) serve(s *system, c *Config) error {
	g, err := gateway.New(gateway.Config{
		TokenSecret: s.node.Secret(), AdminToken: ownAdminToken, ServiceToken: ownServiceToken,
		Registry: s.registry,
	}, s.client)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()
	v.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return errors.Join(g.Close(ctx), <-served)
	})
	peer := newHTTPPeer(listener.Addr().String(), ownServiceToken, c.InFlight)
	v.onClose(func() error { peer.client.CloseIdleConnections(); return nil })
	v.peer = peer
	return nil
}

// visit makes the venue a server that runs already.
func (v *venue) visit(c *Config) error {
	if c.Products > mostListed || c.Products == 0 && c.Workload == WorkloadProducts {
		return fmt.Errorf("%w: the orders of a target are listed product by product: give it at "+
			"most %d products", ErrConfig, mostListed)
	}
	u, err := url.Parse(c.Target)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	peer := newHTTPPeer(u.Host, c.ServiceToken, c.InFlight)
	admin := &httpAdmin{client: newHTTPClient(u.Host, readers), bearer: "Bearer " + c.AdminToken}
	v.onClose(func() error {
		peer.client.CloseIdleConnections()
		admin.client.CloseIdleConnections()
		return nil
	})
	v.peer, v.source = peer, admin
	v.put, v.gather, v.consumer = admin.put, admin.gather, "the target's own"
	return nil
}

// httpAdmin is a client of the API's admin calls. Any goroutine may use it.
type httpAdmin struct {
	client *fasthttp.HostClient
	bearer string
}

// ask makes one call. into is where the JSON of the answer goes, or a *bytes.Buffer for its bytes.
func (h *httpAdmin) ask(ctx context.Context, method, path, query string, body []byte, into any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.Header.SetMethod(method)
	request.Header.Set("Authorization", h.bearer)
	request.SetHost(h.client.Addr)
	request.URI().SetPath(path)
	request.URI().SetQueryString(query)
	if body != nil {
		request.Header.SetContentType("application/json")
		request.SetBodyRaw(body)
	}
	if err := h.client.Do(request, response); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if status := response.StatusCode(); status != http.StatusOK && status != http.StatusCreated {
		return fmt.Errorf("%s %s: status %d: %s", method, path, status, response.Body())
	}
	if raw, ok := into.(*bytes.Buffer); ok {
		_, err := raw.Write(response.Body())
		return err
	}
	if err := json.Unmarshal(response.Body(), into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// productJSON is what the bench reads of a product.
type productJSON struct {
	FirstNumber uint32 `json:"first_number"`
	Count       uint32 `json:"count"`
	Version     uint64 `json:"version"`
	Counters    struct {
		Count     uint32 `json:"count"`
		Available uint32 `json:"available"`
		Reserved  uint32 `json:"reserved"`
		Sold      uint32 `json:"sold"`
		Blocked   uint32 `json:"blocked"`
	} `json:"counters"`
}

const adminProducts = "/v1/admin/products/"

func (h *httpAdmin) put(ctx context.Context, c *inventory.PutProduct) error {
	s := &c.Settings
	body := fmt.Appendf(nil, `{"name":%q,"price":{"amount":%d,"currency":%q},"count":%d,`+
		`"hold_seconds":%d,"hold_max_seconds":%d,"max_per_order":%d}`,
		s.Name, s.Price.Amount, s.Price.Currency, s.Count, s.HoldSeconds, s.HoldMaxSeconds,
		s.MaxPerOrder)
	return h.ask(ctx, http.MethodPut, adminProducts+string(c.Product), "", body, &productJSON{})
}

// product implements source.
func (h *httpAdmin) product(
	ctx context.Context, id inventory.ProductID,
) (*inventory.ProductView, error) {
	var p productJSON
	if err := h.ask(ctx, http.MethodGet, adminProducts+string(id), "", nil, &p); err != nil {
		return nil, err
	}
	return &inventory.ProductView{
		ID: id, Version: p.Version, Counters: inventory.Counters(p.Counters),
		Settings: inventory.Settings{FirstNumber: p.FirstNumber, Count: p.Count},
	}, nil
}

// numbersPage is the most numbers that one answer tells of.
const numbersPage = 1_000_000

// taken implements source. The version is 0 if it changed on the way.
func (h *httpAdmin) taken(
	ctx context.Context, id inventory.ProductID,
) (*roaring.Bitmap, uint64, error) {
	p, err := h.product(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	taken, version := roaring.New(), uint64(0)
	for from := uint64(p.Settings.FirstNumber); from <= uint64(p.Settings.LastNumber()); {
		var page struct {
			Version uint64      `json:"version"`
			To      uint32      `json:"to"`
			Taken   [][2]uint32 `json:"taken"`
		}
		query := "limit=" + strconv.Itoa(numbersPage) + "&from=" + strconv.FormatUint(from, 10)
		err := h.ask(ctx, http.MethodGet, "/v1/products/"+string(id)+"/numbers", query, nil, &page)
		if err != nil {
			return nil, 0, err
		}
		if version != 0 && version != page.Version {
			return taken, 0, nil
		}
		version = page.Version
		for _, r := range page.Taken {
			taken.AddRange(uint64(r[0]), uint64(r[1])+1)
		}
		if uint64(page.To) < from {
			return nil, 0, fmt.Errorf("%w: numbers of %s up to %d, asked from %d",
				errAnswer, id, page.To, from)
		}
		from = uint64(page.To) + 1
	}
	return taken, version, nil
}

// orders implements source.
func (h *httpAdmin) orders(
	ctx context.Context, ids []inventory.ProductID, visit func(*inventory.OrderView),
) error {
	for _, id := range ids {
		for query := "limit=1000"; query != ""; {
			var page struct {
				Orders []orderJSON `json:"orders"`
				Next   *string     `json:"next"`
			}
			err := h.ask(ctx, http.MethodGet, adminProducts+string(id)+"/orders", query, nil, &page)
			if err != nil {
				return err
			}
			for i := range page.Orders {
				order, err := page.Orders[i].view()
				if err != nil {
					return err
				}
				visit(order)
			}
			query = ""
			if page.Next != nil {
				query = "limit=1000&after=" + url.QueryEscape(*page.Next)
			}
		}
	}
	return nil
}

// gather reads the metrics of a target.
func (h *httpAdmin) gather(ctx context.Context) (families, error) {
	var text bytes.Buffer
	if err := h.ask(ctx, http.MethodGet, "/metrics", "", nil, &text); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	f, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		return nil, fmt.Errorf("%w: metrics: %w", ErrIncomplete, err)
	}
	return f, nil
}
