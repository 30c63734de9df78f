package inventory_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPure demands of the package's own files what keeps a state machine deterministic: imports of
// the standard library only, without what knows time, chance, threads or the outside; no range over
// a map; no goroutine, channel or floating point.
func TestPure(t *testing.T) {
	files := token.NewFileSet()
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	var parsed []*ast.File
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		parsed = append(parsed, file)
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			require.True(t, allowed(path), "%s imports %s", name, path)
		}
	}
	require.NotEmpty(t, parsed)
	info := types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	config := types.Config{Importer: importer.ForCompiler(files, "gc", exported(t))}
	_, err = config.Check("numera/engine/inventory", files, parsed, &info)
	require.NoError(t, err)
	for _, file := range parsed {
		ast.Inspect(file, func(n ast.Node) bool {
			at := func() string { return files.Position(n.Pos()).String() }
			switch n := n.(type) {
			case *ast.RangeStmt:
				_, isMap := info.Types[n.X].Type.Underlying().(*types.Map)
				require.False(t, isMap, "%s: range over a map", at())
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
				require.Fail(t, "goroutine or channel", at())
			case ast.Expr:
				basic, ok := info.Types[n].Type.(*types.Basic)
				require.False(t, ok && basic.Info()&types.IsFloat != 0, "%s: floating point", at())
			}
			return true
		})
	}
}

// exported finds what the compiler has written about the types of a package.
func exported(t *testing.T) importer.Lookup {
	list := exec.Command("go", "list", "-deps", "-export", "-f", "{{.ImportPath}} {{.Export}}", ".")
	out, err := list.Output()
	require.NoError(t, err)
	paths := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		paths[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(paths[path]) }
}

func allowed(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	switch {
	case path == "github.com/RoaringBitmap/roaring/v2" || path == "numera/engine/inventory/numberset":
		return true
	case strings.Contains(first, ".") || first == "numera":
		return false
	}
	impure := []string{"time", "math/rand", "math/rand/v2", "crypto/rand", "sync", "sync/atomic", "os", "net", "log", "log/slog", "unsafe"}
	return !slices.Contains(impure, path) && first != "os" && first != "net"
}
