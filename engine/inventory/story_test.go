package inventory_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	. "numera/engine/inventory"
)

// TestStories plays the scripts in testdata/stories and compares what happens with what they say.
//
//	product <id> count=<n> [price=… currency=… opens=<+time> closes=<+time> hold=… hold_max=… grace=…
//	    overdue_release=… min=… max=… per_buyer=…]           times in seconds, from the beginning
//	reserve <order> <buyer> <lines…> [key=… partial]          a line: x:17,18 or x*3 or x*3/lowest
//	extend | release | ship <order>
//	begin | confirm | refuse <order> <payment>
//	refund <order> [blocked]
//	block | unblock <product> <numbers…>;  restock <product> <n>;  state <product> open|paused|closed
//	wait <time>                                               and an empty batch
//	show <product | order>;  events                           what a consumer has not seen yet
//	restart                                                   go on from a snapshot
//
// Each command is a batch of its own; it answers with the order, the product, or the refusal.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := &story{shard: openShard(t, DefaultLimits()), names: make(map[OrderID]string)}
		s.do(&Attach{Consumer: "story"})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var told strings.Builder
			require.Equal(t, "story", d.Cmd)
			for line := range strings.Lines(d.Input) {
				words := strings.Fields(line)
				for answer := range strings.Lines(s.line(words)) {
					told.WriteString(strings.Join(words[:min(2, len(words))], " ") + ": " + answer)
				}
			}
			s.verify()
			return told.String()
		})
	})
}

// story remembers the names that a script gives to orders.
type story struct {
	*shard
	names map[OrderID]string
	after uint64 // of the events that were told
}

func (s *story) line(words []string) string {
	switch words[0] {
	case "wait":
		d, err := time.ParseDuration(words[1])
		require.NoError(s.t, err)
		s.wait(d.Milliseconds())
		return ""
	case "restart":
		next := s.restored(DefaultLimits(), 1)
		s.e = next.e
		return ""
	case "show":
		if p := s.e.Product(ProductID(words[1])); p != nil {
			return showProduct(p)
		}
		return s.showOrder(s.get(&OrderView{ID: s.id(words[1])}))
	case "events":
		return s.events()
	}
	o := s.do(s.command(words))
	if words[0] == "reserve" && o.Order != nil && !o.Replay {
		s.names[o.Order.ID] = words[1]
	}
	return s.answer(o)
}

func (s *story) id(name string) OrderID {
	for id, n := range s.names {
		if n == name {
			return id
		}
	}
	return OrderID{}
}

func (s *story) command(words []string) Command {
	on := OnOrder{Order: s.id(words[1])}
	payment := PaymentID(words[len(words)-1])
	product := ProductID(words[1])
	switch words[0] {
	case "product":
		return s.product(words)
	case "reserve":
		return s.reservation(words)
	case "extend":
		return &Extend{on}
	case "release":
		return &Release{on}
	case "ship":
		return &Ship{on}
	case "begin":
		return &BeginPayment{on, payment}
	case "confirm":
		return &Confirm{on, payment}
	case "refuse":
		return &Refuse{on, payment}
	case "refund":
		return &Refund{OnOrder: on, ReturnToStock: len(words) == 2}
	case "block":
		return &Block{Product: product, Numbers: numbersOf(words[2])}
	case "unblock":
		return &Unblock{Product: product, Numbers: numbersOf(words[2])}
	case "restock":
		return &Restock{Product: product, Count: number(words[2]), Key: s.key()}
	case "state":
		states := []string{"open", "paused", "closed"}
		return &SetSaleState{Product: product, State: SaleState(slices.Index(states, words[2]))}
	}
	panic("no such line in a story: " + words[0])
}

func (s *story) product(words []string) Command {
	c := &PutProduct{Product: ProductID(words[1]), Settings: settings(1)}
	if p := s.e.Product(c.Product); p != nil {
		c.Settings = p.Settings
	}
	p := &c.Settings
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		if name == "currency" {
			p.Price.Currency = value
			continue
		}
		n := int64(number(value))
		switch name {
		case "count":
			p.Count = uint32(n)
		case "price":
			p.Price.Amount = n
		case "opens":
			p.OpensAtUnixMilli = opening + n*second
		case "closes":
			p.ClosesAtUnixMilli = opening + n*second
		case "hold":
			p.HoldSeconds = n
		case "hold_max":
			p.HoldMaxSeconds = n
		case "grace":
			p.PaymentGraceSeconds = n
		case "overdue_release":
			p.OverdueReleaseSeconds = n
		case "min":
			p.MinPerOrder = uint32(n)
		case "max":
			p.MaxPerOrder = uint32(n)
		case "per_buyer":
			p.MaxPerBuyer = uint32(n)
		default:
			panic("no such setting in a story: " + name)
		}
	}
	return c
}

func (s *story) reservation(words []string) Command {
	c := s.order(BuyerID(words[2]))
	for _, word := range words[3:] {
		if key, ok := strings.CutPrefix(word, "key="); ok {
			c.Key = key
		} else if word == "partial" {
			c.Partial = true
		} else if id, list, ok := strings.Cut(word, ":"); ok {
			c.Lines = append(c.Lines, chosen(ProductID(id), numbersOf(list)...))
		} else {
			id, quantity, _ := strings.Cut(word, "*")
			quantity, pick, _ := strings.Cut(quantity, "/")
			picks := []string{"", "lowest", "adjacent"}
			c.Lines = append(c.Lines, anyOf(ProductID(id), number(quantity), Pick(slices.Index(picks, pick))))
		}
	}
	return c
}

func numbersOf(list string) (numbers []uint32) {
	for text := range strings.SplitSeq(list, ",") {
		numbers = append(numbers, number(text))
	}
	return numbers
}

func number(text string) uint32 {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		panic("no number in a story: " + text)
	}
	return uint32(n)
}

func (s *story) answer(o *Outcome) string {
	text := ""
	if o.Code != CodeOK {
		text = "refused: " + o.Code.String() + sayRefusal(o.Refusal)
	}
	if o.Product != nil {
		text = showProduct(o.Product)
	} else if o.Order != nil && o.Code == CodeOK {
		text = s.showOrder(o.Order)
	}
	text = strings.TrimSuffix(text, "\n")
	for _, missing := range o.Missing {
		text += " missing " + selection(missing)
	}
	if o.Replay {
		text += " (again)"
	}
	return text + "\n"
}

func sayRefusal(r *Refusal) string {
	text := ""
	for _, taken := range r.Taken {
		text += " taken " + selection(taken)
	}
	for _, near := range r.Alternatives {
		text += " near " + selection(near)
	}
	for _, n := range []struct {
		what string
		n    uint32
	}{{"available", r.Available}, {"longest run", r.LongestRun}, {"held", r.Held}} {
		if n.n > 0 {
			text += fmt.Sprintf(", %s %d", n.what, n.n)
		}
	}
	for _, at := range []struct {
		what string
		at   int64
	}{{"opens", r.OpensAtUnixMilli}, {"closes", r.ClosesAtUnixMilli}, {"next expiry", r.NextExpiryUnixMilli}} {
		if at.at != 0 {
			text += fmt.Sprintf(", %s %s", at.what, clock(at.at))
		}
	}
	if r.Status != StatusNone {
		text += ", the order is " + r.Status.String()
	}
	return text
}

// clock is the time since the beginning.
func clock(unixMilli int64) string {
	return fmt.Sprint("at ", time.Duration(unixMilli-opening)*time.Millisecond)
}

func selection(s Selection) string {
	text := string(s.Product)
	if len(s.Numbers) > 0 {
		text += ":" + strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Numbers), " ", ","), "[]")
	}
	if s.Quantity > 0 {
		text += fmt.Sprint("*", s.Quantity)
	}
	return text
}

func (s *story) showOrder(o *OrderView) string {
	var items []string
	for _, item := range o.Items {
		items = append(items, selection(Selection{Product: item.Product, Numbers: item.Numbers}))
	}
	text := fmt.Sprintf("%s %s of %s", o.Status, strings.Join(items, " "), o.Buyer)
	if o.Overdue {
		text += " overdue"
	}
	if o.Status.Live() {
		text += " until " + clock(o.ExpiresUnixMilli)[3:]
	}
	total := o.Total()
	return fmt.Sprintf("%s for %d %s\n", text, total.Amount, total.Currency)
}

func showProduct(p *ProductView) string {
	c := p.Counters
	return fmt.Sprintf("%d available, %d reserved, %d sold, %d blocked of %d\n",
		c.Available, c.Reserved, c.Sold, c.Blocked, c.Count)
}

func (s *story) events() string {
	text := ""
	events, _, trimmed := tailOf(s.e, s.after, 1000)
	require.False(s.t, trimmed)
	for _, e := range events {
		e = e.Open()
		about := ""
		if e.Order != nil {
			about = s.names[e.Order.ID]
		} else {
			about = string(e.Product.ID)
		}
		text += fmt.Sprintf("%d %s %s\n", e.Sequence, e.Kind, about)
		s.after = e.Sequence
	}
	s.do(&Acknowledge{Consumer: "story", Sequence: s.after})
	return text
}
