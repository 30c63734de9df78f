package gateway

import (
	"maps"
	"math"

	"numera/gateway/order"
)

// schema is a JSON Schema (2020-12), as OpenAPI 3.1 has it.
type schema map[string]any

func text(description string) schema {
	return schema{"type": "string", "description": description}
}

func boolean(description string) schema {
	return schema{"type": "boolean", "description": description}
}

func integer(description string, least, most int64) schema {
	s := schema{"type": "integer", "minimum": least, "description": description}
	if most != math.MaxInt64 {
		s["maximum"] = most
	}
	return s
}

func instant(description string) schema {
	return schema{"type": "string", "format": "date-time", "description": description}
}

func choice(description string, names []string) schema {
	return schema{"type": "string", "enum": names, "description": description}
}

func arrayOf(description string, items schema) schema {
	return schema{"type": "array", "items": items, "description": description}
}

func numbersSchema(description string) schema {
	return arrayOf(description, integer("A number", 0, math.MaxUint32))
}

// orNull lets a schema be null too.
func orNull(s schema) schema {
	kind, single := s["type"].(string)
	if !single {
		return s
	}
	nullable := maps.Clone(s)
	nullable["type"] = []string{kind, "null"}
	if names, ok := s["enum"].([]string); ok {
		values := make([]any, 0, len(names)+1)
		for _, name := range names {
			values = append(values, name)
		}
		nullable["enum"] = append(values, nil)
	}
	return nullable
}

func ref(name string) schema { return schema{"$ref": "#/components/schemas/" + name} }

// record is an object that has exactly these members, all of them always.
func record(description string, properties map[string]schema) schema {
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	return closed(description, properties, names)
}

func closed(description string, properties map[string]schema, required []string) schema {
	s := schema{
		"type": "object", "description": description, "properties": properties,
		"additionalProperties": false,
	}
	if len(required) > 0 {
		s["required"] = sorted(required)
	}
	return s
}

// objectOf is an object of a request, with the members that it is read by.
func objectOf(description string, members []member) schema {
	properties := map[string]schema{}
	var required []string
	for _, m := range members {
		if m.place != inBody {
			continue
		}
		s := m.schema
		if m.required {
			required = append(required, m.name)
		} else {
			s = orNull(s)
		}
		properties[m.name] = s
	}
	return closed(description, properties, required)
}

// components are what the answers are made of.
func components() map[string]schema {
	numbers := func(description string) schema { return numbersSchema(description) }
	product := record("A product, its settings and its counters", map[string]schema{
		"id": text("Its id"), "name": text("What it is called"), "price": ref("Money"),
		"first_number":            integer("The first number", 0, math.MaxUint32),
		"count":                   integer("How many numbers", 1, math.MaxUint32),
		"opens_at":                orNull(instant("When the sale opens")),
		"closes_at":               orNull(instant("When the sale closes")),
		"hold_seconds":            integer("How long a reservation holds", 1, math.MaxInt64),
		"hold_max_seconds":        integer("How long extends can make it", 1, math.MaxInt64),
		"payment_grace_seconds":   integer("What begin-payment adds", 1, math.MaxInt64),
		"overdue_release_seconds": orNull(integer("When an overdue order is given up", 1, math.MaxInt64)),
		"min_per_order":           integer("The smallest order", 1, math.MaxUint32),
		"max_per_order":           integer("The largest order", 1, math.MaxUint32),
		"max_per_buyer":           orNull(integer("How many a buyer holds at most", 1, math.MaxUint32)),
		"campaign":                text("The opening it belongs to"),
		"capture":                 choice("When authorised money is taken", captures),
		"late_payment":            choice("What becomes of money for an order that has ended", latePayments),
		"state":                   choice("The admin's switch", saleStates),
		"counters":                ref("Counters"),
		"version":                 integer("Rises with every change", 0, math.MaxInt64),
	})
	return map[string]schema{
		"Money": record("An amount of money", map[string]schema{
			"amount": integer("Minor units", 0, math.MaxInt64), "currency": text("ISO 4217"),
		}),
		"Product": product,
		"Counters": record("They add up to the count", map[string]schema{
			"count":     integer("All numbers", 0, math.MaxUint32),
			"available": integer("On sale", 0, math.MaxUint32),
			"reserved":  integer("Held by orders that are reserved or paying", 0, math.MaxUint32),
			"sold":      integer("Of orders that are paid or shipped", 0, math.MaxUint32),
			"blocked":   integer("Out of sale", 0, math.MaxUint32),
		}),
		"Order": record("An order", map[string]schema{
			"id": text("Its id"), "status": choice("Where it is", statuses()),
			"overdue": boolean("Paying, past its deadline, and still held"),
			"buyer":   text("Who orders"),
			"items":   arrayOf("One for each product", ref("Item")), "total": ref("Money"),
			"created_at": instant("When it was accepted"),
			"expires_at": instant("When its reservation ends"),
		}),
		"Item": record("What an order has of one product", map[string]schema{
			"product": text("The product's id"), "numbers": numbers("Ascending"),
			"unit_price": ref("Money"), "total": ref("Money"),
		}),
		"OrderAnswer": record("An order as it was at a time", map[string]schema{
			"order": ref("Order"), "server_time": instant("The log time"),
		}),
		"CreatedOrder": record("A new order", map[string]schema{
			"order": ref("Order"), "missing": ref("Selections"),
			"server_time": instant("The log time that decided it"),
		}),
		"OrdersPage": record("A page of orders, oldest first", map[string]schema{
			"orders": arrayOf("At most limit", ref("Order")),
			"next":   orNull(text("What to give as after; null: there are no more yet")),
		}),
		"Selections": arrayOf("Some of each product", closed("Numbers, or a quantity",
			map[string]schema{
				"product": text("The product's id"), "numbers": numbers("Given numbers"),
				"quantity": integer("How many of any", 1, math.MaxUint32),
			}, []string{"product"})),
		"Numbers": record("Which numbers of a range are taken", map[string]schema{
			"version": integer("Of the product", 0, math.MaxInt64),
			"from":    integer("The first number looked at", 0, math.MaxUint32),
			"to":      integer("The last number looked at", 0, math.MaxUint32),
			"taken":   arrayOf("Inclusive ranges, ascending", rangeSchema()),
		}),
		"Session": record("An anonymous session", map[string]schema{
			"token": text("The bearer token"), "buyer": text("The buyer it speaks for"),
			"expires_at": instant("When it ends"),
		}),
		"Payment": paymentSchema(),
		"PaymentAnswer": record("A payment as it is now", map[string]schema{
			"payment": ref("Payment"), "server_time": instant("The gateway's time"),
		}),
		"PaymentsAnswer": pageOf("Payments", "payments", "Oldest first", "Payment"),
		"Refund": record("Money that goes back", map[string]schema{
			"id": text("Its id"), "payment": text("Of which payment"), "amount": ref("Money"),
			"whole":      boolean("Whether it ends the order"),
			"status":     choice("Where it stands", refundStatuses),
			"reason":     text("Why"),
			"created_at": instant("When it was asked for"),
		}),
		"RefundAnswer": record("A refund as it is now", map[string]schema{
			"refund": ref("Refund"), "server_time": instant("The gateway's time"),
		}),
		"RefundsAnswer": pageOf("The refunds of a payment", "refunds", "Oldest first", "Refund"),
		"Finding": record("What somebody has to look at", map[string]schema{
			"kind": text("What it is"), "subject": text("A payment's or an order's id"),
			"detail": text("What differs"), "found_at": instant("When it was found"),
			"seen_at": instant("When it was seen last"),
		}),
		"FindingsAnswer": pageOf("What is open", "findings", "Oldest first", "Finding"),
		"DeadLetter": record("A job that has failed for good", map[string]schema{
			"id": text("Its id"), "queue": choice("Whose it is", queues), "kind": text("What it does"),
			"about":    {"type": "object", "description": "Which payment, refund or webhook"},
			"error":    text("Why it failed the last time"),
			"attempts": integer("How often", 0, math.MaxUint32), "created_at": instant("When it was made"),
			"died_at": instant("When it was given up"),
		}),
		"DeadLettersAnswer": pageOf("Dead letters", "dead_letters", "By id", "DeadLetter"),
		"Replayed": record("How many are done again", map[string]schema{
			"replayed": integer("How many", 0, math.MaxUint32),
		}),
		"Problem": problemSchema(),
	}
}

var refundStatuses = []string{
	string(order.RefundRequested), string(order.RefundPending), string(order.RefundDone),
	string(order.RefundFailed),
}

// pageOf is a list, and where it goes on.
func pageOf(description, name, sorted, item string) schema {
	return record(description, map[string]schema{
		name:   arrayOf(sorted, ref(item)),
		"next": orNull(text("What to give as after; null: there are no more yet")),
	})
}

func paymentSchema() schema {
	action := closed("What the buyer has to do", map[string]schema{
		"kind":       choice("What it is", []string{"pix", "redirect", "confirm"}),
		"pix_code":   text("The text to copy and paste, with pix"),
		"qr_svg":     text("The same as a picture, with pix"),
		"url":        text("Where to go, with redirect"),
		"client_key": text("What the provider's page in the browser needs, with confirm"),
	}, []string{"kind"})
	return record("One attempt to pay an order", map[string]schema{
		"id": text("Its id"), "order": text("The order's id"), "method": choice("How", methods),
		"provider":   text("Who takes the money; empty if there is none to take"),
		"status":     choice("Where it stands", paymentStatuses),
		"processing": boolean("Whether it is still being worked on: ask again"),
		"amount":     ref("Money"), "captured": ref("Money"), "refunded": ref("Money"),
		"action":     orNull(action),
		"created_at": instant("When it was asked for"),
		"expires_at": instant("Until when the buyer can act"),
	})
}

func rangeSchema() schema {
	s := numbersSchema("First and last")
	s["minItems"], s["maxItems"] = 2, 2
	return s
}

func problemSchema() schema {
	codes := make([]string, 0, len(refusals))
	for c := range refusals {
		codes = append(codes, string(c))
	}
	count := func(description string) schema { return integer(description, 0, math.MaxUint32) }
	return closed("Why not (RFC 9457)", map[string]schema{
		"type": text("A URI of the kind of problem"), "title": text("The kind, for people"),
		"status": integer("The HTTP status", 400, 599), "detail": text("This one, for people"),
		"code":        choice("The kind, for programs", sorted(codes)),
		"pointer":     text("A JSON Pointer into the body"),
		"offset":      integer("The byte of the body where it went wrong", 0, math.MaxInt64),
		"server_time": instant("The log time that decided it, or the gateway's"),
		"taken":       ref("Selections"), "alternatives": ref("Selections"),
		"next_expiry": orNull(instant("When something may come back; null: nothing will")),
		"available":   count("How many there are"), "longest_run": count("The longest unbroken run"),
		"opens_at":     orNull(instant("When the sale opens")),
		"closes_at":    orNull(instant("When the sale closed")),
		"order_status": choice("Where the order is", statuses()),
		"minimum":      count("The least"), "limit": count("The most"),
		"held":     count("What the buyer holds"),
		"degraded": arrayOf("What is down", text("Its name")),
	}, []string{"type", "title", "status", "detail", "code", "server_time"})
}
