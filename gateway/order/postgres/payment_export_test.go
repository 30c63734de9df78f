package postgres

// PaymentStatements are all statements about payments, as they are prepared.
func PaymentStatements() map[string]string {
	all := map[string]string{
		"payment": paymentSQL, "byKey": byKeySQL, "byReference": byReferenceSQL,
		"ofOrder": ofOrderSQL, "secret": secretSQL, "refunds": refundsSQL, "refund": refundSQL,
		"receive": receiveStatement.sql, "webhook": webhookSQL, "acted": actedSQL, "sift": siftStatement.sql,
		"pullEvents": pullEventsSQL, "deleteEvents": deleteEventsSQL,
		"create": createStatement.sql, "duePayments": duePaymentsSQL, "dueRefunds": dueRefundsSQL, "dueWebhooks": dueWebhooksSQL,
	}
	all["save"] = saveStatement.sql
	return all
}
