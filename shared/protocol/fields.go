package protocol

import (
	"fmt"
	"strings"
	"time"
)

// fieldReader takes a value apart, field by field. The first mistake stays in
// err, and all that is read after it is zero.
type fieldReader struct {
	text string // what is left
	err  error
}

func fields(text string) *fieldReader { return &fieldReader{text: text} }

func (f *fieldReader) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

// more tells whether anything is left.
func (f *fieldReader) more() bool { return f.err == nil && f.text != "" }

// word takes the next field. Fields are separated by exactly one space.
func (f *fieldReader) word() string {
	if f.err != nil {
		return ""
	}
	word, rest, found := strings.Cut(f.text, " ")
	if word == "" {
		f.fail("a field is missing before %q", f.text)
		return ""
	}
	if found && rest == "" {
		f.fail("a space at the end")
		return ""
	}
	f.text = rest
	return word
}

// flag takes the next field where it is that word.
func (f *fieldReader) flag(name string) bool {
	if !f.more() || f.text != name {
		return false
	}
	f.text = ""
	return true
}

// value takes the next field, which is <name>=<value>.
func (f *fieldReader) value(name string) string {
	word := f.word()
	value, found := strings.CutPrefix(word, name+"=")
	if f.err == nil && !found {
		f.fail("%q is not %s=<value>", word, name)
	}
	return value
}

func (f *fieldReader) number(name string) int {
	value := f.value(name)
	if f.err != nil {
		return 0
	}
	n, err := parseNumber(value)
	if err != nil {
		f.fail("%s: %w", name, err)
	}
	return n
}

func (f *fieldReader) grant() Grant {
	word := f.word()
	if f.err != nil {
		return Grant{}
	}
	g, err := ParseGrant(word)
	if err != nil {
		f.fail("%w", err)
	}
	return g
}

// time takes an RFC 3339 time in whole seconds, of any zone, and gives it in UTC.
func (f *fieldReader) time() time.Time {
	word := f.word()
	if f.err != nil {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, word)
	if err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
		f.fail("%q is not an RFC 3339 time", word)
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}

// rest takes all that is left, which must be something.
func (f *fieldReader) rest(what string) string {
	if f.err != nil {
		return ""
	}
	text := strings.TrimSpace(f.text)
	if text == "" {
		f.fail("%s is missing", what)
	}
	f.text = ""
	return text
}

func (f *fieldReader) end() {
	if f.more() {
		f.fail("unexpected %q", f.text)
	}
}
