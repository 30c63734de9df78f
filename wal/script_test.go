package wal

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

const scriptGroups = 2

// model is what a store must hold, kept as naively as can be.
type model struct {
	terms  [scriptGroups]map[uint64]uint64
	stable [scriptGroups]map[string]string
}

func (m model) clone() model {
	for i := range scriptGroups {
		m.terms[i] = maps.Clone(m.terms[i])
		m.stable[i] = maps.Clone(m.stable[i])
	}
	return m
}

func (m model) bounds(group int) (first, last uint64) {
	for index := range m.terms[group] {
		if first == 0 || index < first {
			first = index
		}
		last = max(last, index)
	}
	return first, last
}

// step is one call to the store and what it does to the model.
type step struct {
	name  string
	run   func(r *scriptRun) error
	apply func(m *model)
}

// script is a sequence of steps and the model after each number of them.
type script struct {
	steps  []step
	models []model
}

// newScript makes up n steps, among which the store is flushed and opened again now and then.
func newScript(rng *rand.Rand, n uint64) *script {
	m := model{}
	for i := range scriptGroups {
		m.terms[i], m.stable[i] = map[uint64]uint64{}, map[string]string{}
	}
	sc := &script{models: []model{m.clone()}}
	for term := uint64(1); term <= n; term++ {
		var s step
		switch term % 8 {
		case 4:
			s = step{"flush", (*scriptRun).flush, func(*model) {}}
		case 6:
			s = step{"reopen", (*scriptRun).reopen, func(*model) {}}
		default:
			s = nextStep(rng, m, term)
		}
		s.apply(&m)
		sc.steps = append(sc.steps, s)
		sc.models = append(sc.models, m.clone())
	}
	return sc
}

func nextStep(rng *rand.Rand, m model, term uint64) step {
	g := rng.IntN(scriptGroups)
	first, last := m.bounds(g)
	switch kind := rng.IntN(12); {
	case kind <= 2:
		return setStep(g, fmt.Sprint("key", rng.IntN(3)), fmt.Sprint("value", term))
	case kind == 3 && last > 0:
		return deleteStep(g, first, first+rng.Uint64N(last-first+1))
	case kind == 4 && last > 0:
		return deleteStep(g, first+rng.Uint64N(last-first+1), last)
	case kind == 5 && last > 0:
		return storeStep(g, term, first+rng.Uint64N(last-first+1), 1+rng.Uint64N(4))
	case kind == 6:
		return storeStep(g, term, last+2+rng.Uint64N(9), 1+rng.Uint64N(4))
	case kind == 7:
		return storeStep(g, term, last+1, 100)
	default:
		return storeStep(g, term, last+1, 1+rng.Uint64N(8))
	}
}

func setStep(group int, key, value string) step {
	return step{
		fmt.Sprintf("group %d: set %s", group, key),
		func(r *scriptRun) error { return r.group(group).Set([]byte(key), []byte(value)) },
		func(m *model) { m.stable[group][key] = value },
	}
}

func deleteStep(group int, from, to uint64) step {
	return step{
		fmt.Sprintf("group %d: delete %d to %d", group, from, to),
		func(r *scriptRun) error { return r.group(group).DeleteRange(from, to) },
		func(m *model) {
			for index := from; index <= to; index++ {
				delete(m.terms[group], index)
			}
		},
	}
}

func storeStep(group int, term, first, count uint64) step {
	last := first + count - 1
	return step{
		fmt.Sprintf("group %d: store %d to %d", group, first, last),
		func(r *scriptRun) error { return r.group(group).StoreLogs(entriesOf(term, first, last)) },
		func(m *model) {
			before := m.terms[group]
			m.terms[group] = termsOf(term, first, last)
			lowest, highest := (model{terms: [scriptGroups]map[uint64]uint64{before}}).bounds(0)
			if highest == 0 || lowest >= first || highest+1 < first {
				return
			}
			for index := lowest; index < first; index++ {
				m.terms[group][index] = before[index]
			}
		},
	}
}

// scriptRun plays a script against a store, from its first boot on.
type scriptRun struct {
	config Config
	store  *Store
	// acknowledged is how many steps have returned without an error.
	acknowledged atomic.Int64
}

func (r *scriptRun) group(id int) *Group {
	g, err := r.store.Group(uint16(id))
	if err != nil {
		panic(err)
	}
	return g
}

func (r *scriptRun) flush() error { return r.store.fault.guard(r.store.db.Flush) }

func (r *scriptRun) reopen() error {
	if err := r.store.Close(); err != nil {
		return err
	}
	var err error
	r.store, err = Open(r.config)
	return err
}

// play returns the first error, having stopped there.
func (r *scriptRun) play(sc *script) error {
	first := r.config
	first.Create = true
	var err error
	if r.store, err = Open(first); err != nil {
		return err
	}
	for _, s := range sc.steps {
		if err := s.run(r); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.acknowledged.Add(1)
	}
	return r.store.Close()
}

// held reads back everything that a store holds. Errors fail the test.
func held(t testing.TB, s *Store) model {
	var m model
	for i := range scriptGroups {
		g := groupOf(t, s, uint16(i))
		first, err := g.FirstIndex()
		require.NoError(t, err)
		last, err := g.LastIndex()
		require.NoError(t, err)
		m.terms[i], m.stable[i] = map[uint64]uint64{}, map[string]string{}
		for index := first; index != 0 && index <= last; index++ {
			var got raft.Log
			require.NoError(t, g.GetLog(index, &got))
			require.Equal(t, *entriesOf(got.Term, index, index)[0], got)
			m.terms[i][index] = got.Term
		}
		for _, v := range *g.stable.Load() {
			m.stable[i][string(v.key)] = string(v.value)
		}
	}
	return m
}

// requireHeld checks that the store is as after some number of steps between atLeast and atMost.
func (sc *script) requireHeld(t testing.TB, s *Store, atLeast, atMost int64) {
	t.Helper()
	got := held(t, s)
	atMost = min(atMost, int64(len(sc.steps)))
	for n := atLeast; n <= atMost; n++ {
		if got.equal(sc.models[n]) {
			return
		}
	}
	require.Equal(t, sc.models[atLeast], got, "nor any state up to step %d", atMost)
}

func (m model) equal(other model) bool {
	for i := range scriptGroups {
		if !maps.Equal(m.terms[i], other.terms[i]) || !maps.Equal(m.stable[i], other.stable[i]) {
			return false
		}
	}
	return true
}
