package order

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// Actors are the engine, as reconciliation reads it.
type Actors interface {
	Info() wire.Info
	Scan(context.Context, inventory.ShardID, wire.ScanQuery) (*wire.Scan, error)
	Order(context.Context, wire.OrderQuery) (*inventory.Outcome, error)
}

// Rows are PostgreSQL, as reconciliation reads and repairs it.
type Rows interface {
	// Followed is up to which event the rows contain each shard's, 0 where that is not known.
	Followed(ctx context.Context, shards uint16) ([]uint64, error)
	// Read gives the rows of orders; those that have none are not in the result.
	Read(ctx context.Context, ids []inventory.OrderID) (map[inventory.OrderID]Row, error)
	// EachHeld visits the rows of a shard's orders that are live, sold or to be refunded.
	EachHeld(ctx context.Context, shard inventory.ShardID, visit func(inventory.OrderID)) error
	// Overlaps are numbers that two rows of live or sold orders have, limit at the most.
	Overlaps(ctx context.Context, limit int) ([]Overlap, error)
	// Numberless are rows of sold orders that have no numbers, limit at the most.
	Numberless(ctx context.Context, limit int) ([]inventory.OrderID, error)
	// Unpaid and Unsold are where orders and payments disagree for longer than a checkout takes,
	// limit at the most: sold orders whose payment has not been settled, and payments that are
	// settled and have not sold their order.
	Unpaid(ctx context.Context, limit int) ([]Disagreement, error)
	Unsold(ctx context.Context, limit int) ([]Disagreement, error)
	// Rewrite makes the rows of orders what these views say, whatever they are now.
	Rewrite(ctx context.Context, views []*inventory.OrderView) error
	// Settle records the findings of a pass: those that are left as open, those that were repaired
	// as resolved, and resolves open ones of these kinds that were not found again.
	Settle(ctx context.Context, left, repaired []Finding, kinds []string) error
}

// Row is an order as its row has it, with what the row itself says of its sums.
type Row struct {
	Order    *inventory.OrderView
	Total    inventory.Money
	Quantity int64
}

// Overlap is a number that two rows have.
type Overlap struct {
	Product inventory.ProductID
	Number  uint32
	Orders  [2]inventory.OrderID
}

// Disagreement is a payment that does not fit its order's status.
type Disagreement struct {
	Order  inventory.OrderID
	Detail string
}

// Repair says what Reconcile may change. It changes rows of orders only.
type Repair uint8

// The repairs. A row that has been lost or has fallen behind comes back at any time. One that says
// something else than the engine, about the same change, was altered by somebody: what it said is
// recorded, and it is left to be looked at until a person asks for RepairAll.
const (
	RepairNothing Repair = iota
	RepairLost
	RepairAll
)

// The kinds of what Reconcile finds.
const (
	FindingRowMissing = "row_missing"          // an order has no row, though its events were written
	FindingRowOld     = "row_old"              // likewise, and its row is older
	FindingRowDiffers = "row_differs"          // a row contradicts the engine about one change
	FindingRowAhead   = "row_ahead"            // a row is newer than the engine: it has lost something
	FindingUnknown    = "order_unknown"        // a row holds numbers, and the engine knows no such order
	FindingOverlap    = "numbers_overlap"      // two live or sold orders have one number
	FindingNumberless = "sold_without_numbers" // a sold order has none
	FindingOrderLate  = "order_overdue"        // its payment is unanswered, its numbers are held
	FindingUnpaid     = "sold_without_payment" // a sold order's payment is not settled
	FindingUnsold     = "paid_but_held"        // a payment is settled, its order still held
)

const (
	mostFindings  = 1000 // of a kind are listed; all are counted
	reconcilePage = 1000 // orders are compared at once
	mostLooks     = 3    // at an order that moves meanwhile
)

// ReconcileKinds are the kinds that a pass settles.
func ReconcileKinds() []string {
	return []string{
		FindingRowMissing, FindingRowOld, FindingRowDiffers, FindingRowAhead, FindingUnknown,
		FindingOverlap, FindingNumberless, FindingOrderLate, FindingUnpaid, FindingUnsold,
	}
}

// Report is what a pass has found.
type Report struct {
	Orders   int            // that the engine keeps
	Behind   int            // of these, whose rows have not been written yet: no finding
	Found    map[string]int // by kind
	Left     []Finding      // what is to be looked at, by kind and subject
	Repaired []Finding      // likewise
	Took     time.Duration
}

// Reconcile compares the orders of the engine with their rows, both ways, and rows with payments.
// It reads every order that the engine keeps, a page at a time, beside everything else that goes
// on: a difference counts only if it is still one when both sides are looked at again, the engine
// first and linearizably.
//
// What it cannot know: orders that ended longer ago than the engine keeps them, and were lost from
// the rows. Nothing is compared with them.
func Reconcile(ctx context.Context, actors Actors, rows Rows, repair Repair) (Report, error) {
	began := time.Now()
	p := pass{actors: actors, rows: rows, repair: repair, report: Report{Found: map[string]int{}}}
	err := p.run(ctx)
	if err != nil {
		return p.report, fmt.Errorf("order: reconcile: %w", err)
	}
	p.report.Took = time.Since(began)
	return p.report, nil
}

// pass is one reconciliation.
type pass struct {
	actors Actors
	rows   Rows
	repair Repair
	report Report
}

func (p *pass) run(ctx context.Context) error {
	// What is planted by hand is looked for first: repairing the rows takes it away.
	if err := p.overlaps(ctx); err != nil {
		return err
	}
	if err := p.numberless(ctx); err != nil {
		return err
	}
	for shard := range p.actors.Info().Shards {
		if err := p.shard(ctx, inventory.ShardID(shard)); err != nil {
			return err
		}
	}
	if err := p.disagreements(ctx, FindingUnpaid, true, p.rows.Unpaid); err != nil {
		return err
	}
	if err := p.disagreements(ctx, FindingUnsold, false, p.rows.Unsold); err != nil {
		return err
	}
	for _, list := range [][]Finding{p.report.Left, p.report.Repaired} {
		slices.SortFunc(list, func(a, b Finding) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Subject, b.Subject))
		})
	}
	whole := slices.DeleteFunc(ReconcileKinds(), func(kind string) bool {
		return p.report.Found[kind] >= mostFindings // which of the others are gone is not known
	})
	return p.rows.Settle(ctx, p.report.Left, p.report.Repaired, whole)
}

func (p *pass) found(f Finding, repaired bool) {
	p.report.Found[f.Kind]++
	if p.report.Found[f.Kind] > mostFindings {
		return
	}
	if repaired {
		p.report.Repaired = append(p.report.Repaired, f)
	} else {
		p.report.Left = append(p.report.Left, f)
	}
}

// shard compares the orders of a shard with their rows, and then the rows with the orders.
func (p *pass) shard(ctx context.Context, shard inventory.ShardID) error {
	var held []inventory.OrderID // that the engine knows
	for after := []byte(nil); ; {
		part, err := p.actors.Scan(ctx, shard, wire.ScanQuery{After: after, Limit: reconcilePage})
		if err != nil {
			return err
		}
		if err := p.page(ctx, part.Orders); err != nil {
			return err
		}
		for _, o := range part.Orders {
			if holds(o.Status) {
				held = append(held, o.ID)
			}
		}
		if after = part.Next; len(after) == 0 {
			break
		}
	}
	slices.SortFunc(held, compareIDs)
	var unseen []inventory.OrderID
	err := p.rows.EachHeld(ctx, shard, func(id inventory.OrderID) {
		if _, known := slices.BinarySearchFunc(held, id, compareIDs); !known {
			unseen = append(unseen, id)
		}
	})
	if err != nil {
		return err
	}
	return p.examine(ctx, unseen)
}

func compareIDs(a, b inventory.OrderID) int { return slices.Compare(a[:], b[:]) }

// page compares a part of a scan, and looks again at what differs.
func (p *pass) page(ctx context.Context, orders []*inventory.OrderView) error {
	p.report.Orders += len(orders)
	followed, err := p.rows.Followed(ctx, p.actors.Info().Shards)
	if err != nil {
		return err
	}
	ids := make([]inventory.OrderID, len(orders))
	for i, o := range orders {
		ids[i] = o.ID
	}
	have, err := p.rows.Read(ctx, ids)
	if err != nil {
		return err
	}
	var again []inventory.OrderID
	for _, o := range orders {
		switch kind, _ := compareRow(o, have[o.ID], followed[o.ID.Shard()]); kind {
		case "":
		case behind:
			p.report.Behind++
		default:
			again = append(again, o.ID)
		}
		if o.Overdue {
			p.found(Finding{
				Kind: FindingOrderLate, Subject: o.ID.String(),
				Detail: "since " + time.UnixMilli(o.ExpiresUnixMilli).UTC().Format(time.RFC3339),
			}, false)
		}
	}
	return p.examine(ctx, again)
}

// behind is no finding: the row's time has not come yet.
const behind = "behind"

// compareRow says how a row differs from what the engine has, the engine having been read first:
// a kind of finding, behind, or "". followed was read before the row, so that the row contains at
// least the events up to it.
func compareRow(actor *inventory.OrderView, row Row, followed uint64) (kind, detail string) {
	switch {
	case actor == nil && row.Order == nil:
		return "", ""
	case actor == nil:
		return FindingUnknown, "the row says " + row.Order.Status.String()
	case row.Order == nil && actor.Changed <= followed:
		return FindingRowMissing, "the engine says " + actor.Status.String()
	case row.Order == nil:
		return behind, ""
	case row.Order.Changed < actor.Changed && actor.Changed <= followed:
		return FindingRowOld, fmt.Sprintf("the row has event %d and says %s, the engine %d and %s",
			row.Order.Changed, row.Order.Status, actor.Changed, actor.Status)
	case row.Order.Changed < actor.Changed:
		return behind, ""
	case row.Order.Changed > actor.Changed:
		return FindingRowAhead, fmt.Sprintf("the row has event %d and says %s, the engine %d and %s",
			row.Order.Changed, row.Order.Status, actor.Changed, actor.Status)
	}
	if detail := contradicts(actor, row); detail != "" {
		return FindingRowDiffers, detail
	}
	return "", ""
}

// contradicts names what differs between two images of one change, or is "".
func contradicts(actor *inventory.OrderView, row Row) string {
	var names []string
	o := row.Order
	if o.Status != actor.Status {
		names = append(names, fmt.Sprintf("status %s instead of %s", o.Status, actor.Status))
	}
	for _, field := range []struct {
		name   string
		differ bool
	}{
		{"overdue", o.Overdue != actor.Overdue},
		{"buyer", o.Buyer != actor.Buyer},
		{"payment", o.Payment != actor.Payment},
		{"created_at", o.CreatedUnixMilli != actor.CreatedUnixMilli},
		{"expires_at", o.ExpiresUnixMilli != actor.ExpiresUnixMilli},
		{"items", !slices.EqualFunc(o.Items, actor.Items, equalItems)},
		{"total", row.Total != actor.Total()},
		{"quantity", row.Quantity != quantity(actor)},
	} {
		if field.differ {
			names = append(names, field.name)
		}
	}
	return strings.Join(names, ", ")
}

func equalItems(a, b inventory.ItemView) bool {
	return a.Product == b.Product && a.UnitPrice == b.UnitPrice && slices.Equal(a.Numbers, b.Numbers)
}

func quantity(o *inventory.OrderView) (n int64) {
	for i := range o.Items {
		n += int64(len(o.Items[i].Numbers))
	}
	return n
}

// examine looks at orders again, one by one, and repairs or reports what differs.
func (p *pass) examine(ctx context.Context, ids []inventory.OrderID) error {
	for _, id := range ids {
		actor, kind, detail, err := p.look(ctx, id)
		if err != nil {
			return err
		}
		if kind == "" || kind == behind {
			continue
		}
		repair := p.repair >= RepairLost && (kind == FindingRowMissing || kind == FindingRowOld) ||
			p.repair == RepairAll && kind == FindingRowDiffers
		if repair {
			if err := p.rows.Rewrite(ctx, []*inventory.OrderView{actor}); err != nil {
				return err
			}
		}
		p.found(Finding{Kind: kind, Subject: id.String(), Detail: detail}, repair)
	}
	return nil
}

// look compares one order with its row. A row that seems newer than the engine is looked at again:
// the order has changed in between.
func (p *pass) look(
	ctx context.Context, id inventory.OrderID,
) (actor *inventory.OrderView, kind, detail string, err error) {
	for range mostLooks {
		outcome, err := p.actors.Order(ctx, wire.OrderQuery{Order: id})
		if err != nil {
			return nil, "", "", err
		}
		followed, err := p.rows.Followed(ctx, p.actors.Info().Shards)
		if err != nil {
			return nil, "", "", err
		}
		have, err := p.rows.Read(ctx, []inventory.OrderID{id})
		if err != nil {
			return nil, "", "", err
		}
		row := have[id]
		if outcome.Order == nil && row.Order != nil && !holds(row.Order.Status) {
			return nil, "", "", nil // it has ended, and the engine has forgotten it
		}
		actor = outcome.Order
		kind, detail = compareRow(actor, row, followed[id.Shard()])
		if kind != FindingRowAhead {
			break
		}
	}
	return actor, kind, detail, nil
}

// holds says that an order in this status is one that the engine does not forget.
func holds(s inventory.Status) bool {
	return s.Live() || s.Sold() || s == inventory.StatusRefundPending
}

// overlaps reports numbers that two rows have. A row that is behind may still have what its order
// has given back since: it says nothing.
func (p *pass) overlaps(ctx context.Context) error {
	overlaps, err := p.rows.Overlaps(ctx, mostFindings)
	if err != nil {
		return err
	}
	for _, o := range overlaps {
		current := true
		for _, id := range o.Orders {
			_, kind, _, err := p.look(ctx, id)
			if err != nil {
				return err
			}
			current = current && kind != behind
		}
		if current {
			p.found(Finding{
				Kind: FindingOverlap, Subject: fmt.Sprintf("%s %d", o.Product, o.Number),
				Detail: fmt.Sprintf("orders %s and %s", o.Orders[0], o.Orders[1]),
			}, false)
		}
	}
	return nil
}

// disagreements reports orders whose payments say something else, if they are sold, or not, in the
// engine: rows may be behind.
func (p *pass) disagreements(ctx context.Context, kind string, sold bool,
	read func(context.Context, int) ([]Disagreement, error),
) error {
	all, err := read(ctx, mostFindings)
	if err != nil {
		return err
	}
	for _, d := range all {
		outcome, err := p.actors.Order(ctx, wire.OrderQuery{Order: d.Order})
		if err != nil {
			return err
		}
		if outcome.Order != nil && outcome.Order.Status.Sold() == sold {
			p.found(Finding{Kind: kind, Subject: d.Order.String(), Detail: d.Detail}, false)
		}
	}
	return nil
}

func (p *pass) numberless(ctx context.Context) error {
	ids, err := p.rows.Numberless(ctx, mostFindings)
	for _, id := range ids {
		p.found(Finding{Kind: FindingNumberless, Subject: id.String(), Detail: "its row has none"}, false)
	}
	return err
}

// LogValue writes the report in one line, without personal data.
func (r Report) LogValue() slog.Value {
	attributes := []slog.Attr{
		slog.Int("orders", r.Orders), slog.Int("behind", r.Behind),
		slog.Int("left", len(r.Left)), slog.Int("repaired", len(r.Repaired)),
		slog.Duration("took", r.Took.Round(time.Millisecond)),
	}
	for _, kind := range ReconcileKinds() {
		if n := r.Found[kind]; n > 0 {
			attributes = append(attributes, slog.Int(kind, n))
		}
	}
	return slog.GroupValue(attributes...)
}
