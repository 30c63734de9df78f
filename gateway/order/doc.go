// Package order takes an order from reserved to paid, exactly once, through every failure.
//
// A [Payment] is one attempt to pay one order: one row in a [Store], whose status is its recovery
// point. [Checkout] moves it in steps. A step reads the row, makes one call to the engine, to the
// anti-fraud service or to the provider, each idempotent by something that the row holds, and
// writes what came of it if the row is still as it was read. So any number of workers may move the
// same payment, a crash at any line is a step that is done again, and nothing waits in a
// transaction.
//
// Invariants: which status may follow which is said by one table, [Next], and by the database; what
// was captured less what was refunded is never below zero nor above the order's price; no more than
// one payment of an order is captured at rest. A provider that did not answer is asked what it did,
// never taken to have refused. An order is given up only when nothing can pay it any more.
//
// The package refuses to pay an order that the engine says cannot be paid, to use a key for two
// different things, and to act on a webhook whose amount, currency or account are not the
// payment's: that is raised, as a [Finding].
//
//	checkout, err := order.New(order.Config{Engine: client, Store: store, Accounts: accounts})
//	paid, replay, err := checkout.Pay(ctx, order.PayRequest{Order: id, Key: key, Method: …})
//
// DESIGN.md has the argument.
package order
