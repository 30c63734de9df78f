// The owner of numberset deletes this file when the real one is ready.
package numberset

import "github.com/RoaringBitmap/roaring/v2"

type Set struct {
	b []bool
	n uint32
}
type View struct {
	b []bool
	n uint32
}

func Make(c uint32) Set          { return Set{b: make([]bool, c)} }
func (s *Set) Count() uint32     { return uint32(len(s.b)) }
func (s *Set) Taken() uint32     { return s.n }
func (s *Set) Free() uint32      { return uint32(len(s.b)) - s.n }
func (s *Set) Has(o uint32) bool { return s.b[o] }
func (s *Set) Add(o uint32) bool {
	if s.b[o] {
		return false
	}
	s.b[o] = true
	s.n++
	return true
}
func (s *Set) Remove(o uint32) bool {
	if !s.b[o] {
		return false
	}
	s.b[o] = false
	s.n--
	return true
}
func (s *Set) SelectFree(k uint32) uint32 {
	for i, x := range s.b {
		if !x {
			if k == 0 {
				return uint32(i)
			}
			k--
		}
	}
	panic("x")
}
func (s *Set) RankFree(o uint32) uint32 {
	r := uint32(0)
	for _, x := range s.b[:o] {
		if !x {
			r++
		}
	}
	return r
}
func (s *Set) FirstRun(n uint32) (uint32, bool) {
	run := uint32(0)
	for i, x := range s.b {
		if x {
			run = 0
		} else {
			run++
			if run == n {
				return uint32(i) + 1 - n, true
			}
		}
	}
	return 0, false
}
func (s *Set) LongestRun() (uint32, uint32) {
	run, best, st := uint32(0), uint32(0), uint32(0)
	for i, x := range s.b {
		if x {
			run = 0
		} else {
			run++
			if run > best {
				best = run
				st = uint32(i) + 1 - run
			}
		}
	}
	return st, best
}
func (s *Set) Grow(c uint32)                        { s.b = append(s.b, make([]bool, int(c)-len(s.b))...) }
func (s *Set) Freeze() View                         { return View{append([]bool(nil), s.b...), s.n} }
func (v View) Roaring(first uint32) *roaring.Bitmap { return nil }
