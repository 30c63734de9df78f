package gateway

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"
)

func TestAFullServiceSaysSoAtOnce(t *testing.T) {
	const workers = 4
	g := open(t, func(c *Config) { c.NATSWorkers = workers })
	hold := make(chan struct{})
	g.shards.set(func() { g.shards.hold = hold })
	create := minimal(operationOf(t, "orders.create"))
	create.token = adminToken
	answers := make(chan reply, workers)
	for range workers {
		go func() { answers <- g.overNATS(create) }()
	}
	for range workers {
		<-g.shards.held
	}
	r := g.overNATS(create) // while all workers are held
	require.Equal(t, 503, r.status)
	require.Equal(t, "overloaded", r.code(t))
	require.Equal(t, "1", r.header["Retry-After"])
	require.Equal(t, "503", r.header[micro.ErrorCodeHeader])
	require.NotEmpty(t, r.header[micro.ErrorHeader])
	require.NotEmpty(t, r.header[headerServerTime])

	close(hold)
	for range workers {
		require.Equal(t, 201, (<-answers).status)
	}
	r = g.overNATS(create)
	require.Equal(t, 201, r.status)
	require.Empty(t, r.header[micro.ErrorCodeHeader])
}

func TestALargeAnswerIsRefusedOnNATSOnly(t *testing.T) {
	g := open(t, nil)
	runs := make([]byte, 0, 1<<20)
	numbers := everySecond(200_000)
	runs, err := numbers.AppendTo(runs)
	require.NoError(t, err)
	g.shards.set(func() { g.shards.taken = runs })
	get := asking{subject: "products.numbers", params: aProduct}
	r := g.overHTTP(get)
	require.Equal(t, 200, r.status)
	require.Greater(t, len(r.body), 1<<20)
	r = g.overNATS(get)
	require.Equal(t, 422, r.status)
	require.Equal(t, "/limit", r.json(t)["pointer"])
}

// TestTheTransportsListTheSameOperations asks NATS what the service offers, as `nats micro info`
// does, and the document what HTTP offers.
func TestTheTransportsListTheSameOperations(t *testing.T) {
	g := open(t, nil)
	answer, err := g.nats.Request("$SRV.INFO."+serviceName, nil, 10*time.Second)
	require.NoError(t, err)
	var info micro.Info
	require.NoError(t, json.Unmarshal(answer.Data, &info))
	onNATS := map[string]string{}
	for _, endpoint := range info.Endpoints {
		onNATS[endpoint.Subject] = endpoint.Metadata["http"]
	}
	var document struct {
		Paths map[string]map[string]struct {
			Subject string `json:"x-nats-subject"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(g.request("GET", "/openapi.json", asking{}).body, &document))
	documented := map[string]string{}
	for path, methods := range document.Paths {
		for method, about := range methods {
			if about.Subject != "" {
				documented[about.Subject] = upper(method) + " " + path
			}
		}
	}
	require.Equal(t, documented, onNATS)
	require.Len(t, onNATS, len(operations))
	for subject, route := range onNATS { // and the router knows it: 401 or better, not 404 or 405
		a := minimal(operationOf(t, subject[len(subjectPrefix):]))
		status := g.overHTTP(a).status
		require.NotContains(t, []int{404, 405}, status, route)
	}
}

func TestARequestWithoutReplyIsNotTaken(t *testing.T) {
	g := open(t, nil)
	msg := nats.NewMsg(subjectPrefix + "orders.get")
	msg.Data = []byte(`{"order":"` + testOrder().ID.String() + `"}`)
	msg.Header.Set("Authorization", "Bearer "+adminToken)
	require.NoError(t, g.nats.PublishMsg(msg))
	// The next one on the same subject comes after it.
	require.Equal(t, 200, g.overNATS(asking{subject: "orders.get", params: anOrder, token: adminToken}).status)
	require.Equal(t, 1, g.shards.count())
}
