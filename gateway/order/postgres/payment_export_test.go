package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"

	"numera/gateway/order"
	"numera/gateway/payment"
)

// PaymentStatements are all statements about payments, as they are prepared.
func PaymentStatements() (map[string]string, error) {
	all := map[string]string{
		"payment": paymentSQL, "byKey": byKeySQL, "byReference": byReferenceSQL,
		"ofOrder": ofOrderSQL, "secret": secretSQL, "refunds": refundsSQL, "refund": refundSQL,
		"receive": receiveSQL, "webhook": webhookSQL, "acted": actedSQL,
		"pullEvents": pullEventsSQL, "deleteEvents": deleteEventsSQL,
		"duePayments": duePaymentsSQL, "dueRefunds": dueRefundsSQL, "dueWebhooks": dueWebhooksSQL,
	}
	full := order.Change{
		Answer: &order.Answer{Call: "look_up", Body: []byte("{}")}, Events: []order.Event{"a.b"},
		Refunds: []order.Refund{{DueAt: time.Now()}}, WakeSiblings: true, Resolves: "x",
		Payment: order.Payment{Action: payment.Action{Kind: payment.ActionPix}},
	}
	for name, change := range map[string]order.Change{"save": {}, "saveAll": full} {
		sql, args, err := statement(&change)
		if err != nil {
			return nil, err
		}
		if all[name], _, err = args.RewriteQuery(nil, nil, sql, nil); err != nil {
			return nil, err
		}
	}
	create, _, err := pgx.NamedArgs{}.RewriteQuery(nil, nil, createSQL, nil)
	all["create"] = create
	return all, err
}
