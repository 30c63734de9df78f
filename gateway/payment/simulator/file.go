package simulator

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-json-experiment/json/v1"
)

// boundKey is a keyed call that has been answered.
type boundKey struct {
	Key    string `json:"key"`
	Print  []byte `json:"print"`
	Answer answer `json:"answer"`
}

// line is one line of the file: a payment as it is after a change, and the key of that change. The
// last line of a payment counts.
type line struct {
	Payment string    `json:"payment"`
	Order   string    `json:"order"`
	Charges []*Charge `json:"charges"`
	Calls   []Call    `json:"calls"`
	Bound   *boundKey `json:"bound,omitempty"`
}

// remember writes a line before the change is answered. It outlives the process, not the machine.
func (s *Server) remember(l *ledger, bound *boundKey) {
	if s.file == nil {
		return
	}
	text, err := json.Marshal(line{l.payment, l.order, l.charges, l.calls, bound})
	if err == nil {
		_, err = s.file.Write(append(text, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("simulator: it cannot remember: %v", err)) // the test would mean nothing
	}
}

// openFile reads what an earlier life wrote. What comes next is written over a last line that was
// not finished; what is left of it has no end of its own, and is passed over again.
func (s *Server) openFile() error {
	if s.config.File == "" {
		return nil
	}
	file, err := os.OpenFile(s.config.File, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("simulator: %w", err)
	}
	whole, err := s.recall(bufio.NewReader(file))
	if err == nil {
		_, err = file.Seek(whole, io.SeekStart)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("simulator: %s: %w", s.config.File, err), file.Close())
	}
	s.file = file
	return nil
}

// recall is the length of the lines that were whole.
func (s *Server) recall(from *bufio.Reader) (whole int64, err error) {
	for {
		text, err := from.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return whole, nil
		} else if err != nil {
			return whole, err
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return whole, err
		}
		whole += int64(len(text))
		s.recallLine(&l)
	}
}

func (s *Server) recallLine(l *line) {
	into := s.ledger(&request{Payment: l.Payment})
	into.order, into.charges, into.calls, into.marked = l.Order, l.Charges, l.Calls, true
	for _, c := range l.Charges {
		s.charges[c.ID] = entry{into, c}
	}
	if l.Bound != nil {
		bound := &keyed{answer: l.Bound.Answer}
		copy(bound.print[:], l.Bound.Print)
		s.keys[l.Bound.Key] = bound
	}
}
