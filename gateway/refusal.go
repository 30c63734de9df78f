package gateway

import (
	"strconv"
	"time"

	"numera/engine/inventory"
)

// code is the stable name of a refusal: that of an inventory.Code, or one of these.
type code string

const (
	codeMalformed        code = "malformed"
	codeUnknownMember    code = "unknown_member"
	codeKeyMissing       code = "idempotency_key_missing"
	codeKeyInvalid       code = "idempotency_key_invalid"
	codeUnauthenticated  code = "unauthenticated"
	codeForbidden        code = "forbidden"
	codeNotFound         code = "not_found"
	codeMethodNotAllowed code = "method_not_allowed"
	codeTimeout          code = "request_timeout"
	codeTooLarge         code = "payload_too_large"
	codeMediaType        code = "unsupported_media_type"
	codeHeaderTooLarge   code = "header_too_large"
	codeRateLimited      code = "rate_limited"
	codeInternal         code = "internal"
	codeUnavailable      code = "unavailable"
	codeOutcomeUnknown   code = "outcome_unknown"

	codePaymentNotFound   code = "payment_not_found"
	codeLetterNotFound    code = "dead_letter_not_found"
	codeInProgress        code = "idempotency_in_progress"
	codePaymentStatus     code = "payment_status"
	codeTooManyAttempts   code = "too_many_attempts"
	codeLapsed            code = "authorisation_lapsed"
	codeMethodUnavailable code = "method_unavailable"
	codeRefundAmount      code = "refund_amount"
)

func codeOf(c inventory.Code) code { return code(c.String()) }

// says appends the members of a refusal that go with a code, each after a comma.
type says func(buf []byte, f *inventory.Refusal) []byte

// refusal is what a code means on the outside.
type refusal struct {
	status int
	title  string
	says   says // nil: nothing beyond the members of every problem
}

// refusals is the one table from codes to HTTP.
var refusals = map[code]refusal{
	codeMalformed:        {400, "The request is not well-formed", nil},
	codeUnknownMember:    {400, "The request has a member that the operation does not know", nil},
	codeKeyMissing:       {400, "The operation needs an Idempotency-Key header", nil},
	codeKeyInvalid:       {400, "The Idempotency-Key is not 1 to 255 visible ASCII characters", nil},
	codeUnauthenticated:  {401, "The operation needs a valid bearer token", nil},
	codeForbidden:        {403, "The token does not permit this", nil},
	codeNotFound:         {404, "There is nothing at this path", nil},
	codeMethodNotAllowed: {405, "The path does not take this method", nil},
	codeTimeout:          {408, "The request took too long to arrive", nil},
	codeTooLarge:         {413, "The body is larger than 64 KiB", nil},
	codeMediaType:        {415, "The body has to be application/json in UTF-8", nil},
	codeHeaderTooLarge:   {431, "The headers are too large", nil},
	codeRateLimited:      {429, "Too many requests", nil},
	codeInternal:         {500, "The gateway failed", nil},
	codeUnavailable:      {503, "The shard cannot serve now; nothing was done", nil},
	codeOutcomeUnknown: {
		503, "It is not known whether this was done; repeat it with the same key", nil,
	},

	codePaymentNotFound: {404, "There is no such payment", nil},
	codeLetterNotFound:  {404, "There is no such dead letter", nil},
	codeInProgress: {
		409, "The first request with this key is still being worked on; ask again", nil,
	},
	codePaymentStatus:     {409, "The payment's status forbids this", nil},
	codeTooManyAttempts:   {409, "The order has too many payments under way", nil},
	codeLapsed:            {409, "The authorisation has run out before it was captured", nil},
	codeMethodUnavailable: {422, "Nobody takes this method of payment here", nil},
	codeRefundAmount: {
		422, "The amount is more than what can go back, or in another currency", nil,
	},

	codeOf(inventory.CodeProductNotFound):   {404, "There is no such product", nil},
	codeOf(inventory.CodeOrderNotFound):     {404, "There is no such order", nil},
	codeOf(inventory.CodeNumbersTaken):      {409, "Some of the numbers are taken", saysTaken},
	codeOf(inventory.CodeInsufficientStock): {409, "There are not that many left", saysStock},
	codeOf(inventory.CodeNoAdjacentRun):     {409, "No unbroken run is that long", saysRun},
	codeOf(inventory.CodeSaleNotOpen):       {409, "The sale has not opened yet", saysOpens},
	codeOf(inventory.CodeSaleClosed):        {409, "The sale is closed", saysCloses},
	codeOf(inventory.CodeSalePaused):        {409, "The sale is paused", nil},
	codeOf(inventory.CodeProductHalted):     {409, "The product is halted", nil},
	codeOf(inventory.CodeProductFixed): {
		409, "Range and currency are fixed once a product exists", nil,
	},
	codeOf(inventory.CodeOrderStatus):       {409, "The order's status forbids this", saysStatus},
	codeOf(inventory.CodeExtensionLimit):    {409, "The order cannot last longer", saysStatus},
	codeOf(inventory.CodePaidByAnother):     {409, "Another payment paid the order", saysStatus},
	codeOf(inventory.CodeNumbersNotBlocked): {409, "Some of the numbers are not blocked", saysTaken},
	codeOf(inventory.CodeKeyReused): {
		422, "The idempotency key belongs to another request", nil,
	},
	codeOf(inventory.CodeNumbersOutOfRange): {422, "A number is not of the product", nil},
	codeOf(inventory.CodeNumbersRepeated):   {422, "A number stands there twice", nil},
	codeOf(inventory.CodeQuantityInvalid):   {422, "The quantity makes no sense", nil},
	codeOf(inventory.CodeBasketNotTogether): {422, "These products are not sold together", nil},
	codeOf(inventory.CodeCurrencyMixed):     {422, "The products have different currencies", nil},
	codeOf(inventory.CodeProductInvalid):    {422, "A product cannot be like this", nil},
	codeOf(inventory.CodeValueInvalid):      {422, "A value is out of bounds", nil},
	codeOf(inventory.CodeOrderLimit):        {422, "An order cannot have that many", saysOrderLimit},
	codeOf(inventory.CodeBuyerLimit):        {422, "A buyer cannot hold that many", saysBuyerLimit},
	codeOf(inventory.CodeOverloaded):        {503, "Too much to do now; nothing was done", nil},
	codeOf(inventory.CodeConsumerUnknown):   {404, "There is no such consumer", nil},
}

func saysTaken(buf []byte, f *inventory.Refusal) []byte {
	buf = appendSelections(append(buf, `,"taken":`...), f.Taken)
	buf = appendSelections(append(buf, `,"alternatives":`...), f.Alternatives)
	buf = appendTimeOrNull(append(buf, `,"next_expiry":`...), f.NextExpiryUnixMilli)
	if f.Status != inventory.StatusNone {
		return saysStatus(buf, f)
	}
	return buf
}

func saysStock(buf []byte, f *inventory.Refusal) []byte {
	buf = appendCount(append(buf, `,"available":`...), f.Available)
	return appendTimeOrNull(append(buf, `,"next_expiry":`...), f.NextExpiryUnixMilli)
}

func saysRun(buf []byte, f *inventory.Refusal) []byte {
	buf = appendCount(append(buf, `,"longest_run":`...), f.LongestRun)
	return appendCount(append(buf, `,"available":`...), f.Available)
}

func saysOpens(buf []byte, f *inventory.Refusal) []byte {
	return appendTimeOrNull(append(buf, `,"opens_at":`...), f.OpensAtUnixMilli)
}

func saysCloses(buf []byte, f *inventory.Refusal) []byte {
	return appendTimeOrNull(append(buf, `,"closes_at":`...), f.ClosesAtUnixMilli)
}

// saysStatus names the order's status apart from status, which RFC 9457 section 3.1.3 gives to
// the number of the HTTP status.
func saysStatus(buf []byte, f *inventory.Refusal) []byte {
	return appendText(append(buf, `,"order_status":`...), f.Status.String())
}

func saysOrderLimit(buf []byte, f *inventory.Refusal) []byte {
	buf = appendCount(append(buf, `,"minimum":`...), max(f.Minimum, 1))
	return appendCount(append(buf, `,"limit":`...), f.Limit)
}

func saysBuyerLimit(buf []byte, f *inventory.Refusal) []byte {
	buf = appendCount(append(buf, `,"limit":`...), f.Limit)
	return appendCount(append(buf, `,"held":`...), f.Held)
}

// problem is why a request is refused.
type problem struct {
	code       code
	pointer    string // a JSON Pointer into the body, with located
	located    bool
	offset     int64  // of the byte in the body where it went wrong, or noOffset
	detail     string // "": the title says it all
	refusal    *inventory.Refusal
	retryAfter time.Duration // 0: no advice
	degraded   []string      // with unavailable at /readyz
}

const noOffset = -1

func refused(c code, detail string) *problem {
	return &problem{code: c, offset: noOffset, detail: detail}
}

// retryAfterDefault is the advice where the shard gave none.
const retryAfterDefault = time.Second

func retryLater(c code, after time.Duration) *problem {
	p := refused(c, "")
	p.retryAfter = max(after, retryAfterDefault)
	return p
}

// refusedBy is what an outcome other than CodeOK becomes.
func refusedBy(o *inventory.Outcome) *problem {
	p := refused(codeOf(o.Code), "")
	if o.Code == inventory.CodeOverloaded {
		p.retryAfter = retryAfterDefault
	}
	if o.Refusal == nil {
		o.Refusal = &inventory.Refusal{}
	}
	p.refusal = o.Refusal
	p.detail = o.Refusal.Detail
	p.pointer, p.located = o.Refusal.Pointer, o.Refusal.Pointer != ""
	return p
}

// append writes the problem as application/problem+json (RFC 9457), decided at this time.
func (p *problem) append(buf []byte, atUnixMilli int64) []byte {
	means := refusals[p.code]
	detail := p.detail
	if detail == "" {
		detail = means.title
	}
	buf = append(buf, `{"type":"urn:numera:problem:`...)
	buf = append(append(buf, p.code...), `","title":`...)
	buf = append(appendText(buf, means.title), `,"status":`...)
	buf = strconv.AppendInt(buf, int64(means.status), 10)
	buf = append(appendText(append(buf, `,"detail":`...), detail), `,"code":"`...)
	buf = append(append(buf, p.code...), '"')
	if p.located {
		buf = appendText(append(buf, `,"pointer":`...), p.pointer)
	}
	if p.offset != noOffset {
		buf = strconv.AppendInt(append(buf, `,"offset":`...), p.offset, 10)
	}
	if means.says != nil {
		buf = means.says(buf, p.refusal)
	}
	if p.degraded != nil {
		buf = appendTexts(append(buf, `,"degraded":`...), p.degraded)
	}
	buf = appendTime(append(buf, `,"server_time":`...), atUnixMilli)
	return append(buf, '}')
}
