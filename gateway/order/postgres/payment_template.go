package postgres

import (
	"regexp"
	"strconv"
)

// template is a statement with its arguments by name, @like_this, rewritten once: pgx.NamedArgs do
// it for every call.
type template struct {
	sql   string
	names []string // of $1 and so on
}

// named are arguments.
type named map[string]any

var argument = regexp.MustCompile(`@[a-z_]+`)

func newTemplate(sql string) template {
	var t template
	places := make(map[string]string)
	t.sql = argument.ReplaceAllStringFunc(sql, func(name string) string {
		if places[name] == "" {
			t.names = append(t.names, name[1:])
			places[name] = "$" + strconv.Itoa(len(t.names))
		}
		return places[name]
	})
	return t
}

// arguments puts them in order. What the statement does not name is left out.
func (t *template) arguments(by named) []any {
	args := make([]any, len(t.names))
	for i, name := range t.names {
		args[i] = by[name]
	}
	return args
}
