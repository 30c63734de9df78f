package inventory

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

func refuse(code Code, refusal Refusal) *Outcome {
	return &Outcome{Code: code, Refusal: &refusal}
}

func invalid(code Code, pointer, detail string) *Outcome {
	return refuse(code, Refusal{Pointer: pointer, Detail: detail})
}

// Check implements Command. Beyond the form of each line it refuses what no state could make
// right: products of different labels, a number asked for twice, more than an order holds.
func (c *Reserve) Check() *Outcome {
	switch {
	case len(c.Lines) == 0:
		return invalid(CodeQuantityInvalid, "/items", "an order needs at least one item")
	case len(c.Lines) > MaxLines:
		return refuse(CodeOrderLimit, Refusal{
			Pointer: "/items", Detail: "an order has at most 100 items", Limit: MaxLines,
		})
	case !c.Buyer.Valid():
		return invalid(CodeValueInvalid, "/buyer", "must be 1 to 64 visible ASCII characters")
	}
	total := uint64(0)
	for i := range c.Lines {
		if refusal := c.Lines[i].check(i); refusal != nil {
			return refusal
		}
		total += uint64(len(c.Lines[i].Numbers)) + uint64(c.Lines[i].Quantity)
		if c.Lines[i].Product.Label() != c.Lines[0].Product.Label() {
			return invalid(CodeBasketNotTogether, fmt.Sprintf("/items/%d/product", i),
				"all products of one order share the first label of their id")
		}
	}
	if total > MaxNumbersInOrder {
		return refuse(CodeOrderLimit, Refusal{
			Pointer: "/items", Detail: "an order has at most 1000 numbers", Limit: MaxNumbersInOrder,
		})
	}
	return c.checkRepeated()
}

func (l *Line) check(i int) *Outcome {
	switch {
	case !l.Product.Valid():
		return invalid(CodeProductNotFound, fmt.Sprintf("/items/%d/product", i),
			"no product has an id of this form")
	case (len(l.Numbers) == 0) == (l.Quantity == 0):
		return invalid(CodeQuantityInvalid, fmt.Sprintf("/items/%d", i),
			"an item has either numbers or a quantity of at least 1")
	case l.Pick > PickAdjacent:
		return invalid(CodeValueInvalid, fmt.Sprintf("/items/%d/pick", i),
			"must be random, lowest or adjacent")
	}
	return nil
}

// checkRepeated finds a number that stands twice in the order. It sorts references rather than
// comparing all with all: an order has up to 1,000 numbers.
func (c *Reserve) checkRepeated() *Outcome {
	type mention struct {
		product ProductID
		number  uint32
		line, i int
	}
	var mentions []mention
	for line := range c.Lines {
		for i, number := range c.Lines[line].Numbers {
			mentions = append(mentions, mention{c.Lines[line].Product, number, line, i})
		}
	}
	if len(mentions) < 2 {
		return nil
	}
	slices.SortStableFunc(mentions, func(a, b mention) int {
		if a.number != b.number {
			return int(int64(a.number) - int64(b.number))
		}
		if a.product < b.product {
			return -1
		} else if a.product > b.product {
			return 1
		}
		return 0
	})
	for k := 1; k < len(mentions); k++ {
		a, b := mentions[k-1], mentions[k]
		if a.number == b.number && a.product == b.product {
			return invalid(CodeNumbersRepeated, fmt.Sprintf("/items/%d/numbers/%d", b.line, b.i),
				fmt.Sprintf("%d is already in this order", b.number))
		}
	}
	return nil
}

// Check implements Command.
func (c *OnOrder) Check() *Outcome {
	if c.By != "" && !c.By.Valid() {
		return &Outcome{Code: CodeOrderNotFound, Refusal: &Refusal{}}
	}
	return nil
}

func (c *OnOrder) checkPayment(payment PaymentID) *Outcome {
	if !payment.Valid() {
		return invalid(CodeValueInvalid, "/payment", "must be 1 to 64 visible ASCII characters")
	}
	return c.Check()
}

// Check implements Command.
func (c *BeginPayment) Check() *Outcome { return c.checkPayment(c.Payment) }

// Check implements Command.
func (c *Confirm) Check() *Outcome { return c.checkPayment(c.Payment) }

// Check implements Command.
func (c *Refuse) Check() *Outcome { return c.checkPayment(c.Payment) }

// Check implements Command.
func (c *Refund) Check() *Outcome {
	if refusal := checkReason(c.Reason); refusal != nil {
		return refusal
	}
	return c.OnOrder.Check()
}

func checkReason(reason string) *Outcome {
	if len(reason) > MaxReason || !utf8.ValidString(reason) {
		return invalid(CodeValueInvalid, "/reason", "must be at most 500 bytes of UTF-8")
	}
	return nil
}

// Check implements Command.
func (c *PutProduct) Check() *Outcome {
	if !c.Product.Valid() {
		return invalid(CodeProductInvalid, "",
			"a product id is one or two labels of a-z, 0-9 and -, joined by a dot")
	}
	if wrong := c.Settings.Check(); wrong != nil {
		return invalid(CodeProductInvalid, wrong.Pointer, wrong.Detail)
	}
	return nil
}

// Check implements Command.
func (c *Restock) Check() *Outcome {
	if c.Count < 1 || c.Count > MaxCount {
		return invalid(CodeProductInvalid, "/count", "must be 1 to 100000000")
	}
	return checkProduct(c.Product)
}

func checkProduct(p ProductID) *Outcome {
	if !p.Valid() {
		return &Outcome{Code: CodeProductNotFound, Refusal: &Refusal{}}
	}
	return nil
}

// Check implements Command.
func (c *Block) Check() *Outcome { return checkNumbers(c.Product, c.Numbers, c.Reason) }

// Check implements Command.
func (c *Unblock) Check() *Outcome { return checkNumbers(c.Product, c.Numbers, c.Reason) }

func checkNumbers(p ProductID, numbers []uint32, reason string) *Outcome {
	switch {
	case len(numbers) < 1 || len(numbers) > MaxBlock:
		return invalid(CodeQuantityInvalid, "/numbers", "must be 1 to 10000 numbers")
	case checkReason(reason) != nil:
		return checkReason(reason)
	}
	seen := make(map[uint32]struct{}, len(numbers))
	for i, number := range numbers {
		if _, repeated := seen[number]; repeated {
			return invalid(CodeNumbersRepeated, fmt.Sprintf("/numbers/%d", i),
				fmt.Sprintf("%d is already in this list", number))
		}
		seen[number] = struct{}{}
	}
	return checkProduct(p)
}

// Check implements Command.
func (c *SetSaleState) Check() *Outcome {
	if c.State > SaleClosed {
		return invalid(CodeValueInvalid, "/state", "must be open, paused or closed")
	}
	return checkProduct(c.Product)
}

// Check implements Command.
func (c *Attach) Check() *Outcome { return checkConsumer(c.Consumer) }

// Check implements Command.
func (c *Detach) Check() *Outcome { return checkConsumer(c.Consumer) }

// Check implements Command.
func (c *Acknowledge) Check() *Outcome { return checkConsumer(c.Consumer) }

func checkConsumer(name string) *Outcome {
	if !visibleASCII(name, 64) {
		return invalid(CodeValueInvalid, "/consumer", "must be 1 to 64 visible ASCII characters")
	}
	return nil
}

// Check implements Command.
func (c *LowerClock) Check() *Outcome {
	if c.UnixMilli < 0 || c.UnixMilli > maxUnixMilli {
		return invalid(CodeValueInvalid, "/time", instantDetail)
	}
	return nil
}
