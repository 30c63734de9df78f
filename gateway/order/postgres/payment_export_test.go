package postgres

import "fmt"

// PaymentStatements are all statements about payments, as they are prepared.
func PaymentStatements() map[string]string {
	all := map[string]string{
		"payment": paymentSQL, "byKey": byKeySQL, "byReference": byReferenceSQL,
		"ofOrder": ofOrderSQL, "secret": secretSQL, "refunds": refundsSQL, "refund": refundSQL,
		"receive": receiveSQL, "webhook": webhookSQL, "acted": actedSQL, "known": knownSQL,
		"pullEvents": pullEventsSQL, "deleteEvents": deleteEventsSQL,
		"create": createStatement.sql, "duePayments": duePaymentsSQL, "dueRefunds": dueRefundsSQL, "dueWebhooks": dueWebhooksSQL,
	}
	for set, save := range saves {
		all[fmt.Sprint("save", set)] = save.sql
	}
	return all
}
