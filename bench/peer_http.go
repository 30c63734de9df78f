package bench

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/valyala/fasthttp"

	"numera/engine/inventory"
)

// httpPeer is a client of the API, with a connection for each request under way. It blocks.
type httpPeer struct {
	client *fasthttp.HostClient
	bearer string // of a service, which may name any buyer
}

func newHTTPPeer(address, token string, connections int) *httpPeer {
	return &httpPeer{client: newHTTPClient(address, connections), bearer: "Bearer " + token}
}

// newHTTPClient makes one that asks once: a request without an answer is the oracle's to repeat.
func newHTTPClient(address string, connections int) *fasthttp.HostClient {
	return &fasthttp.HostClient{
		Addr: address, MaxConns: connections, MaxConnWaitTimeout: askTimeout,
		ReadTimeout: 2 * askTimeout, WriteTimeout: askTimeout,
		MaxIdleConnDuration:      time.Minute, // the server closes after 75 s
		NoDefaultUserAgentHeader: true, MaxIdemponentCallAttempts: 1,
		MaxResponseBodySize: 64 << 20,
		RetryIfErr: func(*fasthttp.Request, int, error) (bool, bool) {
			return false, false
		},
	}
}

func (p *httpPeer) start(c *call) {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	p.write(request, &c.op)
	a := answer{verdict: unanswered, code: "no_answer"}
	if err := p.client.Do(request, response); err == nil {
		a = readAnswer(response)
	}
	fasthttp.ReleaseRequest(request)
	fasthttp.ReleaseResponse(response)
	c.finish(a)
}

// steps are the last parts of the paths of operations on an order.
var steps = map[inventory.Kind]string{
	inventory.KindExtend: "/extend", inventory.KindBeginPayment: "/begin-payment",
	inventory.KindConfirm: "/confirm", inventory.KindRefuse: "/refuse",
}

func (p *httpPeer) write(r *fasthttp.Request, op *operation) {
	r.Header.SetMethod(http.MethodPost)
	r.Header.Set("Authorization", p.bearer)
	r.Header.SetContentType("application/json")
	r.SetHost(p.client.Addr)
	text := op.buyer.text()
	switch op.kind {
	case inventory.KindReserve:
		r.URI().SetPath("/v1/orders")
		r.Header.Set("Idempotency-Key", text)
		r.SetBodyRaw(appendReserve(make([]byte, 0, 256), op, text))
	case inventory.KindRelease:
		r.Header.SetMethod(http.MethodDelete)
		r.URI().SetPath("/v1/orders/" + op.order.String())
	case inventory.KindExtend:
		r.URI().SetPath("/v1/orders/" + op.order.String() + steps[op.kind])
	default:
		r.URI().SetPath("/v1/orders/" + op.order.String() + steps[op.kind])
		r.SetBodyString(`{"payment":"` + text + `"}`)
	}
}

// appendReserve writes the body of a reservation. None of its texts needs quoting.
func appendReserve(buf []byte, op *operation, buyer string) []byte {
	buf = append(append(buf, `{"items":[{"product":"`...), op.product...)
	if len(op.numbers) > 0 {
		buf = append(buf, `","numbers":[`...)
		for i, number := range op.numbers {
			if i > 0 {
				buf = append(buf, ',')
			}
			buf = strconv.AppendUint(buf, uint64(number), 10)
		}
		buf = append(buf, ']')
	} else {
		buf = strconv.AppendUint(append(buf, `","quantity":`...), uint64(op.quantity), 10)
	}
	return append(append(append(buf, `}],"buyer":"`...), buyer...), `"}`...)
}

// orderJSON is what the bench reads of an order.
type orderJSON struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Buyer  string `json:"buyer"`
	Items  []struct {
		Product string   `json:"product"`
		Numbers []uint32 `json:"numbers"`
	} `json:"items"`
}

var errAnswer = errors.New("not an answer of the contract")

func (o *orderJSON) view() (*inventory.OrderView, error) {
	id, ok := inventory.ParseOrderID(o.ID)
	status, known := statuses[o.Status]
	if !ok || !known {
		return nil, fmt.Errorf("%w: order %q is %q", errAnswer, o.ID, o.Status)
	}
	v := &inventory.OrderView{ID: id, Status: status, Buyer: inventory.BuyerID(o.Buyer)}
	for i := range o.Items {
		v.Items = append(v.Items, inventory.ItemView{
			Product: inventory.ProductID(o.Items[i].Product), Numbers: o.Items[i].Numbers,
		})
	}
	return v, nil
}

// statuses are the statuses of orders, by name.
var statuses = func() map[string]inventory.Status {
	byName := make(map[string]inventory.Status)
	for s := inventory.StatusReserved; s <= inventory.StatusRefunded; s++ {
		byName[s.String()] = s
	}
	return byName
}()

// readAnswer says what a response means.
func readAnswer(r *fasthttp.Response) answer {
	status := r.StatusCode()
	if status == http.StatusOK || status == http.StatusCreated {
		var body struct {
			Order orderJSON `json:"order"`
		}
		err := json.Unmarshal(r.Body(), &body)
		if err != nil {
			return answer{verdict: garbled, code: "garbled", err: err}
		}
		order, err := body.Order.view()
		if err != nil {
			return answer{verdict: garbled, code: "garbled", err: err}
		}
		replay := len(r.Header.Peek("Idempotent-Replay")) > 0
		return answer{code: inventory.CodeOK.String(), order: order, replay: replay}
	}
	var problem struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(r.Body(), &problem); err != nil || problem.Code == "" {
		err = fmt.Errorf("%w: status %d without a code", errAnswer, status)
		return answer{verdict: garbled, code: "garbled", err: err}
	}
	a := answer{verdict: refused, code: problem.Code}
	switch {
	case problem.Code == "outcome_unknown":
		a.verdict = unanswered
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests,
		problem.Code == "idempotency_in_progress":
		a.verdict = turnedAway
	case status >= http.StatusInternalServerError, status == http.StatusUnauthorized,
		status == http.StatusForbidden, status == http.StatusBadRequest:
		a.verdict = garbled
		a.err = fmt.Errorf("%w: %d %s", errAnswer, status, problem.Code)
	}
	return a
}
