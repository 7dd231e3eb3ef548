// Package law says which grants of a key go together, and which tokens they may have. docs/guarantees.md promises both.
package law

import "fmt"

// Mode is how a grant holds a lock.
type Mode byte

// The modes.
const (
	Exclusive Mode = 'x'
	Shared    Mode = 's'
	Permit    Mode = 'p'
)

// Grant is a lock that an owner holds.
type Grant struct {
	Owner  int
	Token  int64 // 0 where the lock has no tokens
	Mode   Mode
	Permit int
	Limit  int
	Holds  int
}

// String describes the grant for people.
func (grant Grant) String() string {
	text := map[Mode]string{Exclusive: "exclusive", Shared: "shared"}[grant.Mode]
	if grant.Mode == Permit {
		text = fmt.Sprintf("permit %d of %d", grant.Permit, grant.Limit)
	}
	if grant.Token != 0 {
		text += fmt.Sprintf(", token %d", grant.Token)
	}
	return text
}

// Plain returns the grant with a permit of one as what it is, an exclusive lock.
func (grant Grant) Plain() Grant {
	if grant.Mode == Permit && grant.Limit == 1 {
		grant.Mode = Exclusive
	}
	if grant.Mode != Permit {
		grant.Permit, grant.Limit = 0, 0
	}
	return grant
}

// Beside returns whether two owners may hold these grants at the same time.
func (grant Grant) Beside(other Grant) bool {
	if grant.Mode != other.Mode || grant.Mode == Exclusive {
		return false
	}
	return grant.Mode == Shared ||
		grant.Permit != other.Permit && grant.Permit <= other.Limit && other.Permit <= grant.Limit
}

// Tokens is the largest token of the exclusive grants of a key, of the shared ones, and of each permit number.
type Tokens struct {
	Exclusive int64
	Shared    int64
	Permits   []PermitToken
}

// PermitToken is the largest token of a permit number.
type PermitToken struct {
	Permit int
	Token  int64
}

// Admits returns whether a grant may have its token after all these.
func (tokens Tokens) Admits(grant Grant) bool {
	return grant.Token == 0 || grant.Token > tokens.excluded(grant)
}

// Pass returns whether a resource that has seen all these lets the grant pass: a holder may come several times.
func (tokens Tokens) Pass(grant Grant) bool {
	return grant.Token >= tokens.excluded(grant)
}

// excluded returns the largest token of grants that exclude this one.
func (tokens Tokens) excluded(grant Grant) int64 {
	excluded := tokens.Exclusive
	if grant.Mode != Shared {
		excluded = largest(excluded, tokens.Shared)
	}
	for _, permit := range tokens.Permits {
		if grant.Mode != Permit || permit.Permit == grant.Permit {
			excluded = largest(excluded, permit.Token)
		}
	}
	return excluded
}

// With returns the tokens after a grant.
func (tokens Tokens) With(grant Grant) Tokens {
	switch grant.Mode {
	case Exclusive:
		tokens.Exclusive = largest(tokens.Exclusive, grant.Token)
	case Shared:
		tokens.Shared = largest(tokens.Shared, grant.Token)
	case Permit:
		tokens.Permits = withPermit(tokens.Permits, PermitToken{grant.Permit, grant.Token})
	}
	return tokens
}

// withPermit returns a copy, in the order of numbers, with the larger token of this one.
func withPermit(permits []PermitToken, added PermitToken) []PermitToken {
	copied := make([]PermitToken, 0, len(permits)+1)
	for _, permit := range permits {
		if permit.Permit > added.Permit && added.Permit != 0 {
			copied = append(copied, added)
			added.Permit = 0
		}
		if permit.Permit == added.Permit {
			permit.Token = largest(permit.Token, added.Token)
			added.Permit = 0
		}
		copied = append(copied, permit)
	}
	if added.Permit != 0 {
		copied = append(copied, added)
	}
	return copied
}

func largest(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}
