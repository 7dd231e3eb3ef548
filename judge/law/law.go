// Package law decides which grants of a key may exist at the same time, and which tokens they may have.
// docs/guarantees.md promises both.
package law

import "fmt"

// Mode is the mode in which a grant holds a lock.
type Mode byte

// The modes.
const (
	Exclusive Mode = 'x'
	Shared    Mode = 's'
	Permit    Mode = 'p'
)

// Grant is an owner's hold on a lock.
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

// Plain returns the grant in one form: a permit with a limit of one becomes the exclusive grant that it is, and a grant
// that is no permit has neither number nor limit.
func (grant Grant) Plain() Grant {
	if grant.Mode == Permit && grant.Limit == 1 {
		grant.Mode = Exclusive
	}
	if grant.Mode != Permit {
		grant.Permit, grant.Limit = 0, 0
	}
	return grant
}

// Beside returns whether two different owners may hold these grants at the same time.
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

// Admits returns whether a new grant may have its token after grants with these tokens.
func (tokens Tokens) Admits(grant Grant) bool {
	return grant.Token == 0 || grant.Token > tokens.excluded(grant)
}

// Pass returns whether a resource that has seen these tokens lets the grant pass. A holder may use its token several
// times.
func (tokens Tokens) Pass(grant Grant) bool {
	return grant.Token >= tokens.excluded(grant)
}

// excluded returns the largest of these tokens that belongs to a grant which the given grant excludes.
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

// With returns these tokens with the token of one more grant.
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

// withPermit returns a copy, ordered by number. It has the added token where that is larger.
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
