package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"numera/engine/inventory"
)

// openAPI writes the document of the operations, OpenAPI 3.1.
func openAPI() ([]byte, error) {
	paths := map[string]map[string]any{}
	for i := range operations {
		op := &operations[i]
		if paths[op.path] == nil {
			paths[op.path] = map[string]any{}
		}
		paths[op.path][strings.ToLower(op.method)] = describe(op)
	}
	for path, what := range map[string]string{
		"/healthz": "Whether the gateway is alive", "/metrics": "Metrics for Prometheus",
		"/readyz": "Whether every shard has a leader", "/openapi.json": "This document",
	} {
		paths[path] = map[string]any{"get": map[string]any{
			"summary": what, "operationId": strings.Trim(path, "/"), "security": []any{},
			"responses": map[string]any{
				"200":     map[string]any{"description": "Yes: here it is"},
				"default": problemResponse(),
			},
		}}
	}
	paths[webhookPath] = map[string]any{"post": webhookDescription()}
	document, err := json.Marshal(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "numera", "version": "1",
			"description": "Sells finite numbered items. Integers are written without a " +
				"fraction or an exponent. Unknown members are refused. On NATS the service " +
				serviceName + " has the same operations: the payload is the body with path and " +
				"query parameters as members.",
		},
		"paths": paths,
		"components": map[string]any{
			"schemas": components(),
			"securitySchemes": map[string]any{"bearer": map[string]any{
				"type": "http", "scheme": "bearer",
			}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return document, nil
}

func webhookDescription() map[string]any {
	var parameters []any
	for name, about := range map[string]string{
		"tenant": "Whose account; " + ownTenant + " for the system's own", "provider": "At which provider",
	} {
		parameters = append(parameters, map[string]any{
			"name": name, "in": string(inPath), "required": true, "schema": text(about),
		})
	}
	return map[string]any{
		"operationId": "webhooks.take", "summary": "A payment provider's notice",
		"description": "Signed by the provider over the raw body, of at most 64 KiB. On HTTP only.",
		"security":    []any{}, "parameters": parameters,
		"requestBody": map[string]any{"required": true, "content": map[string]any{"*/*": map[string]any{}}},
		"responses": map[string]any{
			"200":     map[string]any{"description": "It is stored, now or before"},
			"default": problemResponse(),
		},
	}
}

func describe(op *operation) map[string]any {
	about := map[string]any{
		"operationId":    op.subject,
		"summary":        op.summary,
		"description":    "Role: " + op.role.String() + ".",
		"x-nats-subject": subjectPrefix + op.subject,
		"security":       []any{},
		"responses":      responses(op),
	}
	if op.role != rolePublic {
		about["security"] = []any{map[string]any{"bearer": []string{}}}
	}
	if parameters := parametersOf(op); len(parameters) > 0 {
		about["parameters"] = parameters
	}
	if op.takesBody() {
		body := objectOf("", op.members)
		about["requestBody"] = map[string]any{
			"required": body["required"] != nil,
			"content":  map[string]any{typeJSON: map[string]any{"schema": body}},
		}
	}
	return about
}

func parametersOf(op *operation) []any {
	var parameters []any
	for _, m := range op.members {
		if m.place != inBody {
			parameters = append(parameters, map[string]any{
				"name": m.name, "in": string(m.place), "required": m.required, "schema": m.schema,
			})
		}
	}
	if op.keyed {
		key := text("Repeating it with the same request acts once")
		key["minLength"], key["maxLength"] = 1, maxKey
		parameters = append(parameters, map[string]any{
			"name": headerKey, "in": "header", "required": true, "schema": key,
		})
	}
	return parameters
}

func responses(op *operation) map[string]any {
	content := map[string]any{typeJSON: map[string]any{"schema": op.answers}}
	switch op.subject {
	case "products.numbers":
		content[typeRoaring] = map[string]any{}
	case "products.orders":
		content["text/csv"] = map[string]any{"schema": schema{"type": "string"}}
	}
	accepted := map[string]any{
		"description": "Done", "content": content, "headers": commonHeaders(),
	}
	all := map[string]any{strconv.Itoa(op.status): accepted, "default": problemResponse()}
	switch op.subject {
	case "products.put":
		all[strconv.Itoa(http.StatusCreated)] = accepted
	case "products.get":
		all[strconv.Itoa(http.StatusNotModified)] = map[string]any{
			"description": "The version of If-None-Match is the present one",
		}
	}
	return all
}

func problemResponse() map[string]any {
	return map[string]any{
		"description": "Not done, and why",
		"headers":     commonHeaders(),
		"content":     map[string]any{typeProblem: map[string]any{"schema": ref("Problem")}},
	}
}

func commonHeaders() map[string]any {
	return map[string]any{
		headerServerTime: map[string]any{
			"required": true, "schema": instant("The log time that decided it, or the gateway's"),
		},
		headerRequestID: map[string]any{
			"required": true, "schema": text("The request's id, the caller's or made here"),
		},
	}
}

// statuses are the names of all statuses that an order can have.
func statuses() []string {
	var names []string
	for s := inventory.StatusReserved; s.String() != "unknown"; s++ {
		names = append(names, s.String())
	}
	return names
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
