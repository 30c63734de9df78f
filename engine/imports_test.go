package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mayImport says, for every folder of the module, which others its packages may import. Folders
// stand for all below them that have no row of their own; a package may import its own folder.
var mayImport = map[string][]string{
	"engine/inventory/numberset": {},
	"engine/inventory":           {"engine/inventory/numberset"},
	"engine":                     {"engine/inventory", "engine/inventory/numberset"},
	"wal":                        {},
	"shard/clock":                {},
	"shard/transport":            {},
	"shard/wire":                 {"engine/inventory"},
	"shard":                      {"engine", "engine/inventory", "wal", "shard/clock", "shard/transport", "shard/wire"},
	"gateway":                    {"shard/wire", "engine/inventory", "gateway/order", "gateway/payment", "gateway/payment/pix"},
	"gateway/payment":            {},
	"gateway/payment/pix":        {},
	"gateway/payment/exchange":   {"gateway/payment"},
	"gateway/payment/routing":    {"gateway/payment"},
	"gateway/payment/simulator": {
		"gateway/payment", "gateway/payment/exchange", "gateway/payment/pix",
	},
	"gateway/payment/stripe":      {"gateway/payment", "gateway/payment/exchange"},
	"gateway/payment/mercadopago": {"gateway/payment", "gateway/payment/exchange"},
	"gateway/order": {
		"gateway/payment", "gateway/payment/routing", "engine/inventory", "shard/wire", "gateway/shards",
	},
	"gateway/order/postgres": {"gateway/order", "gateway/payment", "engine/inventory", "shard/wire"},
	"bench":                  {"gateway", "shard", "shard/clock", "shard/wire", "shard/transport", "wal", "engine", "engine/inventory"},
	"cmd": {
		"bench", "gateway", "gateway/order", "gateway/order/postgres", "gateway/payment", "shard",
		"gateway/payment/mercadopago", "gateway/payment/routing", "gateway/payment/simulator",
		"gateway/payment/stripe",
		"shard/clock", "shard/transport", "shard/wire", "wal", "engine/inventory",
	},
}

// ownedBy says which folders may import a library that decides what a process is linked with. cmd
// and bench, which put the parts together, may import any.
var ownedBy = map[string][]string{
	"github.com/jackc/pgx/":        {"gateway/order/postgres"},
	"github.com/pressly/goose":     {"gateway/order/postgres"},
	"github.com/cockroachdb/":      {"wal", "shard"}, // shard: the file system of pebble
	"github.com/hashicorp/raft":    {"wal", "shard", "shard/transport"},
	"github.com/nats-io/":          {"shard", "gateway", "gateway/order"},
	"github.com/valyala/fasthttp":  {"gateway", "gateway/payment/simulator"},
	"github.com/RoaringBitmap/":    {"engine/inventory", "engine/inventory/numberset", "gateway"},
	"github.com/prometheus/client": {"shard", "gateway", "gateway/order", "gateway/order/postgres", "gateway/payment", "wal"},
}

// TestImports holds the module to "dependencies point one way": who may import whom, directly; and
// what a shard's replica is never linked with, at any distance.
func TestImports(t *testing.T) {
	for _, p := range modulePackages(t) {
		path := strings.TrimPrefix(p.ImportPath, "numera/")
		folder := folderOf(path)
		allowed, known := mayImport[folder]
		require.True(t, known, "%s has a row", path)
		for _, imported := range p.Imports {
			if other, inside := strings.CutPrefix(imported, "numera/"); inside {
				into := folderOf(other)
				require.True(t, into == folder || slices.Contains(allowed, into), "%s imports %s", path, other)
			}
			for library, owners := range ownedBy {
				if strings.HasPrefix(imported, library) && folder != "cmd" && folder != "bench" {
					require.True(t, slices.Contains(owners, folder), "%s imports %s", path, imported)
				}
			}
		}
		if folder == "shard" || folder == "wal" || folder == "engine" {
			for _, dep := range p.Deps {
				for _, never := range []string{"github.com/jackc/", "github.com/valyala/", "numera/gateway"} {
					require.False(t, strings.HasPrefix(dep, never), "%s is linked with %s", path, dep)
				}
			}
		}
	}
}

// folderOf is the longest row that path is in.
func folderOf(path string) string {
	for {
		if _, row := mayImport[path]; row {
			return path
		}
		up := strings.LastIndexByte(path, '/')
		if up < 0 {
			return path
		}
		path = path[:up]
	}
}

type modulePackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func modulePackages(t *testing.T) (packages []modulePackage) {
	list := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "numera/...")
	out, err := list.Output()
	require.NoError(t, err)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p modulePackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			require.NoError(t, err)
		}
		packages = append(packages, p)
	}
}
