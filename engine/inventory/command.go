package inventory

// Command is one request to the state machine. Its fields are validated by Check before it is
// proposed, so that what stands in the log is well formed; it is never changed afterwards.
type Command interface {
	Kind() Kind
	// Check finds what is wrong with the form of the command alone, without any state: a refusal
	// to answer with, or nil.
	Check() *Outcome
	appendBody(buf []byte) []byte
}

// Kind identifies a command in the log. The numbers are part of the stored format.
type Kind uint8

// The kinds of commands.
const (
	KindReserve      Kind = 1
	KindExtend       Kind = 2
	KindBeginPayment Kind = 3
	KindConfirm      Kind = 4
	KindRefuse       Kind = 5
	KindRelease      Kind = 6
	KindShip         Kind = 7
	KindRefund       Kind = 8
	KindPutProduct   Kind = 16
	KindRestock      Kind = 17
	KindBlock        Kind = 18
	KindUnblock      Kind = 19
	KindSetSaleState Kind = 20
	KindAttach       Kind = 32
	KindDetach       Kind = 33
	KindAcknowledge  Kind = 34
	KindLowerClock   Kind = 35
)

// Pick says how numbers are chosen for a line that gives a quantity.
type Pick uint8

// The picks. Random is uniform over the free numbers.
const (
	PickRandom   Pick = 0
	PickLowest   Pick = 1
	PickAdjacent Pick = 2 // one unbroken run, the lowest that fits
)

// Line asks for chosen Numbers, or for Quantity numbers by Pick; never both.
type Line struct {
	Product  ProductID
	Numbers  []uint32
	Quantity uint32
	Pick     Pick
}

// Reserve takes numbers out of sale for one order: all of them, or with Partial what can be had.
// A gateway sends Tenant and Key; the proposer replaces Key by its hash, which is what the log
// holds.
type Reserve struct {
	Tenant  string
	Key     string // 1–255 visible ASCII bytes; empty in the log
	KeyHash KeyHash
	Buyer   BuyerID
	Lines   []Line // 1 to MaxLines, all of one label
	Partial bool
}

// OnOrder is what the commands on one order share. By, where set, is the buyer whose order it
// must be: to another buyer the order does not exist.
type OnOrder struct {
	Order OrderID
	By    BuyerID
}

// The commands on one order. Repeating a transition that already holds answers the order.
type (
	// Extend moves the deadline of a reserved order to min(now + hold, created + hold_max).
	Extend struct{ OnOrder }
	// Release ends a reserved order and gives its numbers back.
	Release struct{ OnOrder }
	// BeginPayment moves reserved → paying and the deadline to at least now + grace.
	BeginPayment struct {
		OnOrder
		Payment PaymentID
	}
	// Confirm sells the numbers: from reserved or paying, or late if they are all still free.
	Confirm struct {
		OnOrder
		Payment PaymentID
	}
	// Refuse ends a paying order whose payment failed and gives its numbers back.
	Refuse struct {
		OnOrder
		Payment PaymentID
	}
	// Ship moves paid → shipped.
	Ship struct{ OnOrder }
	// Refund ends a paid, shipped or refund_pending order. Numbers that do not return to stock
	// become blocked.
	Refund struct {
		OnOrder
		ReturnToStock bool
		Reason        string // ≤ MaxReason bytes
	}
)

// MaxReason bounds the text of a reason, in bytes.
const MaxReason = 500

// The commands on one product.
type (
	// PutProduct creates a product or replaces its settings.
	PutProduct struct {
		Product  ProductID
		Settings Settings
	}
	// Restock appends Count numbers at the end, once per key.
	Restock struct {
		Product ProductID
		Count   uint32
		Tenant  string
		Key     string // as in Reserve
		KeyHash KeyHash
	}
	// Block takes free numbers out of sale, all or none.
	Block struct {
		Product ProductID
		Numbers []uint32 // 1 to MaxBlock
		Reason  string
	}
	// Unblock gives blocked numbers back, all or none.
	Unblock struct {
		Product ProductID
		Numbers []uint32
		Reason  string
	}
	// SetSaleState opens, pauses or closes the sale.
	SetSaleState struct {
		Product ProductID
		State   SaleState
	}
)

// MaxBlock bounds the numbers of one block or unblock, so that no command takes long.
const MaxBlock = 10_000

// SaleState is the admin's switch, apart from the sale window.
type SaleState uint8

// The sale states.
const (
	SaleOpen   SaleState = 0
	SalePaused SaleState = 1
	SaleClosed SaleState = 2
)

// The commands of operation.
type (
	// Attach makes Consumer a reader of the outbox from the next event on.
	Attach struct{ Consumer string }
	// Detach forgets Consumer; what only it kept back is trimmed.
	Detach struct{ Consumer string }
	// Acknowledge says that Consumer has made everything up to Sequence durable.
	Acknowledge struct {
		Consumer string
		Sequence uint64
	}
	// LowerClock sets the log clock back to an instant, for a clock that was pushed ahead.
	LowerClock struct{ UnixMilli int64 }
)

// Kind implements Command, as do the others below.
func (*Reserve) Kind() Kind      { return KindReserve }
func (*Extend) Kind() Kind       { return KindExtend }
func (*Release) Kind() Kind      { return KindRelease }
func (*BeginPayment) Kind() Kind { return KindBeginPayment }
func (*Confirm) Kind() Kind      { return KindConfirm }
func (*Refuse) Kind() Kind       { return KindRefuse }
func (*Ship) Kind() Kind         { return KindShip }
func (*Refund) Kind() Kind       { return KindRefund }
func (*PutProduct) Kind() Kind   { return KindPutProduct }
func (*Restock) Kind() Kind      { return KindRestock }
func (*Block) Kind() Kind        { return KindBlock }
func (*Unblock) Kind() Kind      { return KindUnblock }
func (*SetSaleState) Kind() Kind { return KindSetSaleState }
func (*Attach) Kind() Kind       { return KindAttach }
func (*Detach) Kind() Kind       { return KindDetach }
func (*Acknowledge) Kind() Kind  { return KindAcknowledge }
func (*LowerClock) Kind() Kind   { return KindLowerClock }

// Label is the first label of the products that a command is about, or "" for commands on an
// order or of operation: with OrderID.Shard it says where a command goes.
func Label(c Command) string {
	switch c := c.(type) {
	case *Reserve:
		return c.Lines[0].Product.Label()
	case *PutProduct:
		return c.Product.Label()
	case *Restock:
		return c.Product.Label()
	case *Block:
		return c.Product.Label()
	case *Unblock:
		return c.Product.Label()
	case *SetSaleState:
		return c.Product.Label()
	}
	return ""
}

// SealKey replaces the idempotency key of a command, where it has one, by its hash.
func SealKey(c Command, secret []byte) {
	switch c := c.(type) {
	case *Reserve:
		c.KeyHash = HashKey(secret, c.Tenant, c.Buyer, c.Key, Label(c))
		c.Tenant, c.Key = "", ""
	case *Restock:
		c.KeyHash = HashKey(secret, c.Tenant, "", c.Key, string(c.Product))
		c.Tenant, c.Key = "", ""
	}
}
