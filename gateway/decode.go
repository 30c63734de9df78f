package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"numera/engine/inventory"
)

// decoder reads the members of a request, from JSON or from the text of a parameter. The first
// thing that is not well-formed (a 400) ends the reading. A wrong value (a 422) is remembered and
// the reading goes on, since what follows may not be well-formed. Its zero value is ready; it
// keeps its memory between requests.
type decoder struct {
	json   jsontext.Decoder
	source bytes.Buffer
	body   []byte

	param   string // the parameter that is being read, in place of JSON, or ""
	text    string // its text
	scratch []byte

	malformed *problem
	wrong     *problem
}

// parameter is a path or query parameter of HTTP.
type parameter struct{ name, text string }

// decode fills in from the parameters and the body, and says what is not well-formed (a 400) and
// what is wrong with a value (a 422). An empty body is an empty object. Where there is a URL, its
// members stand nowhere else.
func (d *decoder) decode(
	members []member, url bool, parameters []parameter, body []byte, in *input,
) (malformed, wrong *problem) {
	d.malformed, d.wrong = nil, nil
	seen := d.parameters(members, parameters, in)
	if d.malformed != nil {
		return d.malformed, nil
	}
	var barred uint64
	for i := range members {
		if url && members[i].place != inBody {
			barred |= 1 << i
		}
	}
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		if d.missing(members, seen, ""); d.malformed != nil {
			d.malformed.detail = "the body is empty; " + d.malformed.detail
		}
		return d.malformed, d.wrong
	}
	d.body = body
	d.source = *bytes.NewBuffer(body)
	d.json.Reset(&d.source)
	d.object(members, seen, barred, in)
	d.end()
	d.body = nil
	return d.malformed, d.wrong
}

// parameters reads what stands in the URL. Each is given at most once.
func (d *decoder) parameters(members []member, parameters []parameter, in *input) (seen uint64) {
	for _, p := range parameters {
		i := find(members, p.name)
		if i < 0 || members[i].place == inBody {
			d.refuseForm(codeUnknownMember, "/"+p.name, noOffset,
				fmt.Sprintf("there is no parameter %q here", p.name))
			return seen
		}
		if seen&(1<<i) != 0 {
			d.refuseForm(codeMalformed, "/"+p.name, noOffset,
				fmt.Sprintf("the parameter %s is given twice", p.name))
			return seen
		}
		seen |= 1 << i
		d.param, d.text = p.name, p.text
		members[i].read(d, in)
		d.param, d.text = "", ""
	}
	return seen
}

// object reads a JSON object that has these members, by their bits: those already seen, and those
// barred from standing in it.
func (d *decoder) object(members []member, seen, barred uint64, in *input) {
	if !d.begin('{', "an object") {
		return
	}
	for d.malformed == nil {
		if d.json.PeekKind() == '}' {
			d.token()
			break
		}
		name := d.scalar()
		if d.malformed != nil {
			return
		}
		i := findQuoted(members, name)
		if i < 0 || barred&(1<<i) != 0 {
			d.refuseForm(codeUnknownMember, string(d.json.StackPointer()),
				d.json.InputOffset()-int64(len(name)), "there is no such member here")
			return
		}
		seen |= 1 << i
		if d.json.PeekKind() == 'n' {
			d.null(&members[i])
			continue
		}
		members[i].read(d, in)
	}
	if d.malformed == nil {
		d.missing(members, seen, string(d.json.StackPointer()))
	}
}

// null takes a null, which is as good as nothing where the member may be missing.
func (d *decoder) null(m *member) {
	start := d.start()
	if d.scalar(); d.malformed == nil && m.required {
		d.refuseForm(codeMalformed, string(d.json.StackPointer()), start, "must not be null")
	}
}

func (d *decoder) missing(members []member, seen uint64, pointer string) {
	for i := range members {
		if members[i].required && seen&(1<<i) == 0 {
			d.refuseForm(codeMalformed, pointer+"/"+members[i].name, noOffset,
				members[i].name+" is missing")
			return
		}
	}
}

// array reads a JSON array, calling element before each value, which it has to read.
func (d *decoder) array(element func()) {
	if !d.begin('[', "an array") {
		return
	}
	for d.malformed == nil {
		if d.json.PeekKind() == ']' {
			d.token()
			return
		}
		element()
	}
}

// string reads a string; it shares no memory with the request.
func (d *decoder) string() string {
	if d.param != "" {
		return strings.Clone(d.text)
	}
	if !d.expect('"', "a string") {
		return ""
	}
	raw := d.scalar()
	if d.malformed != nil {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	d.scratch, _ = jsontext.AppendUnquote(d.scratch[:0], raw)
	return string(d.scratch)
}

// boolean reads true or false.
func (d *decoder) boolean() bool {
	if kind := d.json.PeekKind(); kind != 't' && kind != 'f' {
		d.wrongType("true or false")
		return false
	}
	raw := d.scalar()
	return d.malformed == nil && raw[0] == 't'
}

// integer reads a number from least to most; beyond them its value is wrong, and this the code.
func (d *decoder) integer(least, most int64, c inventory.Code) int64 {
	text := []byte(d.text)
	if d.param == "" {
		if !d.expect('0', "an integer") {
			return least
		}
		start := d.start()
		if text = d.scalar(); d.malformed != nil {
			return least
		}
		if !digits(text) {
			d.refuseForm(codeMalformed, d.pointer(), start,
				"must be an integer, written without a fraction or an exponent")
			return least
		}
	} else if !digits(text) {
		d.refuseForm(codeMalformed, d.pointer(), noOffset, "must be an integer")
		return least
	}
	if v, ok := parse(text); ok && v >= least && v <= most {
		return v
	}
	d.refuse(c, fmt.Sprintf("must be an integer from %d to %d", least, most))
	return least
}

// digits says that text is an integer: an optional minus and at least one digit.
func digits(text []byte) bool {
	if len(text) > 0 && text[0] == '-' {
		text = text[1:]
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(text) > 0
}

// parse reads digits; ok is false for what no int64 holds.
func parse(text []byte) (v int64, ok bool) {
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	for _, c := range text {
		digit := int64(c - '0')
		if v > (math.MaxInt64-digit)/10 {
			return 0, false
		}
		v = 10*v + digit
	}
	if negative {
		v = -v
	}
	return v, true
}

// refuse notes that the value just read is wrong, if it is the first.
func (d *decoder) refuse(c inventory.Code, detail string) {
	if d.wrong == nil {
		d.refuseAt(c, d.pointer(), detail)
	}
}

// refuseAt notes that the value at pointer is wrong, if it is the first.
func (d *decoder) refuseAt(c inventory.Code, pointer, detail string) {
	if d.wrong == nil {
		d.wrong = refusedBy(&inventory.Outcome{Code: c, Refusal: &inventory.Refusal{
			Pointer: pointer, Detail: detail,
		}})
	}
}

// pointer is where the value just read stands.
func (d *decoder) pointer() string {
	if d.param != "" {
		return "/" + d.param
	}
	return string(d.json.StackPointer())
}

func (d *decoder) refuseForm(c code, pointer string, offset int64, detail string) {
	d.malformed = &problem{
		code: c, pointer: pointer, located: true, offset: offset, detail: detail,
	}
}

// expect says whether the next value is of a kind, and notes if not.
func (d *decoder) expect(kind jsontext.Kind, want string) bool {
	if d.malformed != nil {
		return false
	}
	if d.json.PeekKind() == kind {
		return true
	}
	d.wrongType(want)
	return false
}

// wrongType refuses the value that comes next. It reads no further than its beginning, so that
// nesting costs nothing.
func (d *decoder) wrongType(want string) {
	start := d.start()
	if !d.token() {
		return
	}
	d.refuseForm(codeMalformed, string(d.json.StackPointer()), start, "must be "+want)
}

func (d *decoder) begin(kind jsontext.Kind, want string) bool {
	return d.expect(kind, want) && d.token()
}

// token reads a delimiter or a scalar that nobody wants to know.
func (d *decoder) token() bool {
	if _, err := d.json.ReadToken(); err != nil {
		d.syntax(err)
	}
	return d.malformed == nil
}

// scalar reads a member's name or a scalar. The result is valid until the next read.
func (d *decoder) scalar() []byte {
	raw, err := d.json.ReadValue()
	if err != nil {
		d.syntax(err)
	}
	return raw
}

// start is the offset of the value that comes next.
func (d *decoder) start() int64 {
	at := d.json.InputOffset()
	for at < int64(len(d.body)) && strings.IndexByte(" \t\r\n:,", d.body[at]) >= 0 {
		at++
	}
	return at
}

// end makes sure that nothing follows the value.
func (d *decoder) end() {
	if d.malformed != nil {
		return
	}
	if _, err := d.json.ReadToken(); err == nil {
		d.refuseForm(codeMalformed, "", d.start(), "something follows the value")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
	}
}

// syntax takes the error of the tokenizer. Its text is shown without the prefix of its package.
func (d *decoder) syntax(err error) {
	var at *jsontext.SyntacticError
	if !errors.As(err, &at) {
		d.refuseForm(codeMalformed, "", int64(len(d.body)), "the body ends too early")
		return
	}
	d.refuseForm(codeMalformed, string(at.JSONPointer), at.ByteOffset,
		strings.TrimPrefix(at.Err.Error(), "jsontext: "))
}

func find(members []member, name string) int {
	for i := range members {
		if members[i].name == name {
			return i
		}
	}
	return -1
}

// findQuoted finds the member whose name stands there as a JSON string.
func findQuoted(members []member, quoted []byte) int {
	if bytes.IndexByte(quoted, '\\') >= 0 {
		name, _ := jsontext.AppendUnquote(nil, quoted)
		return find(members, string(name))
	}
	name := quoted[1 : len(quoted)-1]
	for i := range members {
		if members[i].name == string(name) {
			return i
		}
	}
	return -1
}
