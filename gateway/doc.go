// Package gateway is the API of numera: one set of operations on two transports, HTTP/JSON and
// NATS request-reply, in front of the shards.
//
// It owns the contract and nothing else: it holds no truth, decides nothing about stock, and any
// number of gateways may run side by side.
//
// One table, [operations], names every operation with its HTTP route, its NATS subject, who may
// call it, what it reads and how it is answered. The router, the NATS service, the decoder, the
// OpenAPI document and the metrics are made from it, so that they cannot disagree. One other
// table, [refusals], maps every code to its HTTP status.
//
// A request goes the same way on both transports:
//
//	transport   fills a call: token, key, parameters, body
//	perform     who is it → may it, and how often → decode, strictly → ask the shards → answer
//	transport   writes the answer: the same JSON, the same headers
//
// Invariants. What is refused for its form touches no shard. Every answer carries
// Numera-Server-Time and X-Request-Id, every error is problem+json. A token, a buyer or an order
// never stands in the log or in a metric. Nothing keeps a fasthttp ctx or its bytes.
//
// To use it: [New], then [Gateway.Serve] and [Gateway.ServeNATS] on whatever there is to serve,
// then [Gateway.Close]. See DESIGN.md for what it promises under overload and at its end.
package gateway
