package inventory_test

import (
	"encoding/json"
	"fmt"
	"slices"

	. "numera/engine/inventory"
)

// apply does one command and returns what it should answer. got is what was answered: of it only
// choices are taken.
func (m *model) apply(c Command, got *Outcome) *Outcome {
	if refusal := m.form(c); refusal != nil {
		return refusal
	}
	switch c := c.(type) {
	case *Reserve:
		return m.reserve(c, got)
	case *Attach:
		if _, known := m.consumers[c.Consumer]; !known {
			m.consumers[c.Consumer] = len(m.events)
		}
		return &Outcome{Sequence: uint64(m.consumers[c.Consumer])}
	case *Detach:
		delete(m.consumers, c.Consumer)
		return &Outcome{}
	case *Acknowledge:
		acknowledged, known := m.consumers[c.Consumer]
		if !known {
			return no(CodeConsumerUnknown)
		}
		if c.Sequence <= uint64(len(m.events)) {
			m.consumers[c.Consumer] = max(acknowledged, int(c.Sequence))
		}
		return &Outcome{}
	case *LowerClock:
		m.clock = min(m.clock, c.UnixMilli)
		return &Outcome{}
	case *PutProduct, *Restock, *Block, *Unblock, *SetSaleState:
		return m.admin(c, got)
	}
	return m.onOrder(c)
}

func no(code Code) *Outcome { return &Outcome{Code: code, Refusal: &Refusal{}} }

// form finds a number that is asked for twice, the only fault of form that the random commands have.
func (m *model) form(c Command) *Outcome {
	seen := make(map[string]bool)
	mention := func(id ProductID, numbers []uint32) bool {
		for _, n := range numbers {
			s := fmt.Sprint(id, n)
			if seen[s] {
				return true
			}
			seen[s] = true
		}
		return false
	}
	switch c := c.(type) {
	case *Reserve:
		for _, line := range c.Lines {
			if mention(line.Product, line.Numbers) {
				return no(CodeNumbersRepeated)
			}
		}
	case *Block:
		if mention(c.Product, c.Numbers) {
			return no(CodeNumbersRepeated)
		}
	case *Unblock:
		if mention(c.Product, c.Numbers) {
			return no(CodeNumbersRepeated)
		}
	}
	return nil
}

func (m *model) reserve(c *Reserve, got *Outcome) *Outcome {
	key := c.Tenant + "/" + string(c.Buyer) + "/" + c.Key + "/" + c.Lines[0].Product.Label()
	bytes, _ := json.Marshal([]any{c.Buyer, c.Lines, c.Partial})
	body := string(bytes)
	if o := m.find(func(o *modelOrder) bool { return o.key == key }); o != nil {
		if o.body != body {
			return no(CodeKeyReused)
		}
		return &Outcome{Replay: true, Order: o.view()}
	}
	if m.keptFull() || m.outboxFull(6) {
		return no(CodeOverloaded)
	}
	var asked []*asking
	for _, line := range c.Lines {
		p := m.product(line.Product)
		if p == nil {
			return no(CodeProductNotFound)
		}
		i := slices.IndexFunc(asked, func(a *asking) bool { return a.modelProduct == p })
		if i < 0 {
			i = len(asked)
			asked = append(asked, &asking{modelProduct: p})
		}
		if line.Numbers != nil {
			asked[i].chosen = append(asked[i].chosen, line.Numbers...)
		} else {
			asked[i].lines = append(asked[i].lines, line)
		}
		asked[i].n += uint32(len(line.Numbers)) + line.Quantity
	}
	if refusal := m.allowed(c, asked); refusal != nil {
		return refusal
	}
	refusal := m.refusal(c, asked)
	if refusal != nil && !c.Partial {
		return refusal
	}
	o := &modelOrder{
		key: key, body: body, status: StatusReserved, buyer: c.Buyer, created: m.clock,
	}
	answer := &Outcome{}
	for _, a := range asked {
		numbers, missing := a.take(c.Partial, got)
		if uint32(len(numbers)) < a.settings.MinPerOrder {
			numbers, missing = nil, Selection{Numbers: a.chosen, Quantity: a.n - uint32(len(a.chosen))}
		}
		if len(missing.Numbers) > 0 || missing.Quantity > 0 {
			missing.Product = a.id
			answer.Missing = append(answer.Missing, missing)
		}
		if len(numbers) == 0 {
			continue
		}
		o.items = append(o.items, ItemView{Product: a.id, Numbers: numbers, UnitPrice: a.settings.Price})
		if deadline := m.clock + a.settings.HoldSeconds*1000; o.expires == 0 || deadline < o.expires {
			o.expires = deadline
		}
	}
	if len(o.items) == 0 {
		return refusal
	}
	if got.Order != nil {
		o.id = got.Order.ID
	}
	m.assign(o, owner{order: o})
	m.orders = append(m.orders, o)
	m.tell(o, "order.created", "inventory.reserved")
	answer.Order = o.view()
	return answer
}

// asking is what an order wants of one product.
type asking struct {
	*modelProduct
	chosen []uint32
	lines  []Line // with a quantity
	n      uint32
}

// allowed goes through the checks before stock, each for all products, in their order.
func (m *model) allowed(c *Reserve, asked []*asking) *Outcome {
	for _, a := range asked {
		s := a.settings
		switch {
		case a.state == SaleClosed || (s.ClosesAtUnixMilli != 0 && m.clock >= s.ClosesAtUnixMilli):
			refusal := no(CodeSaleClosed)
			refusal.Refusal.ClosesAtUnixMilli = s.ClosesAtUnixMilli
			return refusal
		case a.state == SalePaused:
			return no(CodeSalePaused)
		case m.clock < s.OpensAtUnixMilli:
			refusal := no(CodeSaleNotOpen)
			refusal.Refusal.OpensAtUnixMilli = s.OpensAtUnixMilli
			return refusal
		}
	}
	for _, a := range asked {
		if a.settings.Price.Currency != asked[0].settings.Price.Currency {
			return no(CodeCurrencyMixed)
		}
		for _, n := range a.chosen {
			if n < a.settings.FirstNumber || uint64(n) >= uint64(a.settings.FirstNumber)+uint64(len(a.numbers)) {
				return no(CodeNumbersOutOfRange)
			}
		}
	}
	for _, a := range asked {
		s := a.settings
		if a.n < s.MinPerOrder || a.n > s.MaxPerOrder {
			refusal := no(CodeOrderLimit)
			refusal.Refusal.Minimum, refusal.Refusal.Limit = s.MinPerOrder, s.MaxPerOrder
			return refusal
		}
		if held := a.held(c.Buyer); s.MaxPerBuyer != 0 && held+a.n > s.MaxPerBuyer {
			refusal := no(CodeBuyerLimit)
			refusal.Refusal.Limit, refusal.Refusal.Held = s.MaxPerBuyer, held
			return refusal
		}
	}
	return nil
}

// refusal says why the whole of an order cannot be had, if it cannot.
func (m *model) refusal(c *Reserve, asked []*asking) *Outcome {
	var ids []ProductID
	refusal := no(CodeNumbersTaken)
	for _, a := range asked {
		ids = append(ids, a.id)
		var taken []uint32
		for _, n := range a.chosen {
			if !a.free(n) {
				taken = append(taken, n)
			}
		}
		slices.Sort(taken)
		if taken != nil {
			refusal.Refusal.Taken = append(refusal.Refusal.Taken, Selection{Product: a.id, Numbers: taken})
		}
	}
	refusal.Refusal.NextExpiryUnixMilli = m.nextExpiry(ids...)
	if refusal.Refusal.Taken != nil {
		return refusal
	}
	for _, a := range asked {
		if free := uint32(len(a.freeNumbers())); free < a.n {
			refusal.Code, refusal.Refusal.Available = CodeInsufficientStock, free
			return refusal
		}
	}
	for _, a := range asked {
		if longest, free, ok := a.runs(); !ok {
			refusal := no(CodeNoAdjacentRun)
			refusal.Refusal.LongestRun, refusal.Refusal.Available = longest, free
			return refusal
		}
	}
	return nil
}

// runs says whether all adjacent lines find a run, beside the chosen numbers and one another. Only
// orders without random lines before adjacent ones can be foretold.
func (a *asking) runs() (longest, free uint32, ok bool) {
	left := slices.DeleteFunc(a.freeNumbers(), func(n uint32) bool {
		return slices.Contains(a.chosen, n)
	})
	for _, line := range a.lines {
		took, longest := a.pick(line, left, int(line.Quantity))
		if took == nil {
			return uint32(longest), uint32(len(left)), false
		}
		left = slices.DeleteFunc(left, func(n uint32) bool { return slices.Contains(took, n) })
	}
	return 0, 0, true
}

// pick takes n of the free numbers; a random pick is taken for the lowest, as in the model it can
// only be the last one.
func (a *asking) pick(line Line, free []uint32, n int) (took []uint32, longest int) {
	if line.Pick == PickAdjacent {
		return run(free, n)
	}
	return free[:n], 0
}

// take is what the order gets of the product and what not. A random pick is read off the answer.
func (a *asking) take(partial bool, got *Outcome) (numbers []uint32, missing Selection) {
	left := a.freeNumbers()
	for _, n := range a.chosen {
		i, free := slices.BinarySearch(left, n)
		if !free {
			missing.Numbers = append(missing.Numbers, n)
			continue
		}
		left = slices.Delete(left, i, i+1)
		numbers = append(numbers, n)
	}
	for _, line := range a.lines {
		n := min(int(line.Quantity), len(left))
		if line.Pick == PickAdjacent {
			_, longest := run(left, 1)
			n = min(n, longest)
		}
		missing.Quantity += line.Quantity - uint32(n)
		if n == 0 {
			continue
		}
		took, _ := a.pick(line, left, n)
		if line.Pick == PickRandom {
			took = a.random(numbers, left, n, got)
		}
		numbers = append(numbers, took...)
		left = slices.DeleteFunc(left, func(n uint32) bool { return slices.Contains(took, n) })
	}
	slices.Sort(numbers)
	return numbers, missing
}

// random is what a random pick took besides the others, if that was legal: n different free numbers.
func (a *asking) random(others, free []uint32, n int, got *Outcome) []uint32 {
	if got.Order == nil {
		return free[:n]
	}
	var took []uint32
	for _, item := range got.Order.Items {
		if item.Product != a.id {
			continue
		}
		for _, number := range item.Numbers {
			if slices.Contains(free, number) && !slices.Contains(others, number) {
				took = append(took, number)
			}
		}
	}
	if len(slices.Compact(took)) != n {
		return free[:n] // which will not equal the answer
	}
	return took
}

func (m *model) admin(c Command, got *Outcome) *Outcome {
	var p *modelProduct
	var refusal *Outcome
	switch c := c.(type) {
	case *PutProduct:
		p = m.product(c.Product)
		if p == nil {
			p = &modelProduct{
				id: c.Product, settings: c.Settings, numbers: make([]owner, c.Settings.Count),
				restocks: make(map[string]modelRestock),
			}
			m.products = append(m.products, p)
			m.tellProduct(p, "product.changed")
			return &Outcome{Created: true, Product: &ProductView{ID: p.id}}
		}
		s := c.Settings
		if s.FirstNumber != p.settings.FirstNumber || int(s.Count) != len(p.numbers) ||
			s.Price.Currency != p.settings.Price.Currency {
			return no(CodeProductFixed)
		}
		if s != p.settings {
			m.tellProduct(p, "product.changed")
		}
		if s.Price != p.settings.Price {
			m.tellProduct(p, "product.price_updated")
		}
		p.settings = s
		return &Outcome{Product: &ProductView{ID: p.id}}
	case *Restock:
		if p = m.product(c.Product); p == nil {
			return no(CodeProductNotFound)
		}
		done, known := p.restocks[c.Tenant+"/"+c.Key]
		forgotten := done.at < m.clock-24*hour && !got.Replay && got.Code != CodeKeyReused
		if known && !forgotten {
			if done.count != c.Count {
				return no(CodeKeyReused)
			}
			return &Outcome{Replay: true, Product: &ProductView{ID: p.id}}
		}
		if len(p.numbers)+int(c.Count) > 100_000_000 {
			return no(CodeProductInvalid)
		}
		p.restocks[c.Tenant+"/"+c.Key] = modelRestock{c.Count, m.clock}
		p.numbers = append(p.numbers, make([]owner, c.Count)...)
		p.settings.Count += c.Count
	case *Block:
		p, refusal = m.reassign(c.Product, c.Numbers, owner{}, owner{blocked: true}, CodeNumbersTaken)
	case *Unblock:
		p, refusal = m.reassign(c.Product, c.Numbers, owner{blocked: true}, owner{}, CodeNumbersNotBlocked)
	case *SetSaleState:
		if p = m.product(c.Product); p == nil {
			return no(CodeProductNotFound)
		}
		if p.state == c.State {
			return &Outcome{Product: &ProductView{ID: p.id}}
		}
		p.state = c.State
	}
	if refusal != nil {
		return refusal
	}
	m.tellProduct(p, "product.changed")
	return &Outcome{Product: &ProductView{ID: p.id}}
}

// reassign blocks or unblocks numbers, all or none.
func (m *model) reassign(
	id ProductID, numbers []uint32, from, to owner, otherwise Code,
) (*modelProduct, *Outcome) {
	p := m.product(id)
	if p == nil {
		return nil, no(CodeProductNotFound)
	}
	for _, n := range numbers {
		if n < p.settings.FirstNumber || int(n-p.settings.FirstNumber) >= len(p.numbers) {
			return nil, no(CodeNumbersOutOfRange)
		}
	}
	refusal := no(otherwise)
	var not []uint32
	for _, n := range numbers {
		if p.numbers[n-p.settings.FirstNumber] != from {
			not = append(not, n)
		}
	}
	if not != nil {
		if otherwise == CodeNumbersTaken {
			refusal.Refusal.Taken = []Selection{{Product: id, Numbers: not}}
			refusal.Refusal.NextExpiryUnixMilli = m.nextExpiry(id)
		}
		return nil, refusal
	}
	for _, n := range numbers {
		p.numbers[n-p.settings.FirstNumber] = to
	}
	return p, nil
}
