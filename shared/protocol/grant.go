package protocol

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxWindowName is the longest name of a window, in bytes: it is a part of the
// names of its slot Leases and of the label that carries a grant.
const MaxWindowName = 40

// Slot is one of a window's slots; its Lease has the name that String gives.
type Slot struct {
	Window string
	// Index counts from 0.
	Index int
}

// String is the name of the slot's Lease: <window>.<index>.
func (s Slot) String() string { return s.Window + "." + strconv.Itoa(s.Index) }

// ParseSlot reads the name of a slot Lease.
func ParseSlot(text string) (Slot, error) {
	window, index, found := strings.Cut(text, ".")
	if !found {
		return Slot{}, fmt.Errorf("slot %q: want <window>.<index>", text)
	}
	if err := checkWindow(window); err != nil {
		return Slot{}, fmt.Errorf("slot %q: %w", text, err)
	}
	n, err := parseNumber(index)
	if err != nil {
		return Slot{}, fmt.Errorf("slot %q: index: %w", text, err)
	}
	return Slot{Window: window, Index: n}, nil
}

// Grant is a fencing token: the turn-th time that a slot was taken. Every status
// names the grant that it answers, so that what a delayed component still says
// of an earlier one is harmless. The zero Grant is no grant.
type Grant struct {
	Slot
	// Turn is the Lease's spec.leaseTransitions, from 1.
	Turn int
}

// IsZero tells whether g is no grant.
func (g Grant) IsZero() bool { return g == Grant{} }

// String is <window>.<index>.<turn>.
func (g Grant) String() string { return g.Slot.String() + "." + strconv.Itoa(g.Turn) }

// ParseGrant reads what String renders, and nothing else.
func ParseGrant(text string) (Grant, error) {
	dot := strings.LastIndexByte(text, '.')
	if dot < 0 {
		return Grant{}, fmt.Errorf("grant %q: want <window>.<slot>.<turn>", text)
	}
	slot, err := ParseSlot(text[:dot])
	if err != nil {
		return Grant{}, fmt.Errorf("grant %q: %w", text, err)
	}
	turn, err := parseNumber(text[dot+1:])
	if err != nil {
		return Grant{}, fmt.Errorf("grant %q: turn: %w", text, err)
	}
	if turn == 0 {
		return Grant{}, fmt.Errorf("grant %q: turn: counts from 1", text)
	}
	return Grant{Slot: slot, Turn: turn}, nil
}

// checkWindow applies RFC 1123's rule for a label, and the limit of a window's name.
func checkWindow(name string) error {
	if name == "" || len(name) > MaxWindowName {
		return fmt.Errorf("window %q: want 1 to %d characters", name, MaxWindowName)
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (c != '-' || i == 0 || i == len(name)-1) {
			return fmt.Errorf("window %q: not a DNS label", name)
		}
	}
	return nil
}

// parseNumber reads a non-negative decimal number in its one canonical form. It
// must fit in the int32 of a Lease's leaseTransitions.
func parseNumber(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		return 0, fmt.Errorf("%q is not a number from 0 to 2147483647", text)
	}
	return int(n), nil
}
