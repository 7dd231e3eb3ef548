package model

import (
	"fmt"

	"palisade/judge/law"
	"palisade/judge/prepare"
)

// Register is a value behind a gate. The gate has seen these tokens.
type Register struct {
	Tokens law.Tokens
	Value  string
}

// Step returns the register after an access, and whether the law allows it.
func (register Register) Step(op prepare.Op) (Register, bool) {
	passes := register.Tokens.Pass(op.Grant)
	switch {
	case op.Kind == prepare.Fenced:
		return register, !passes
	case op.Kind == prepare.Unseen && !passes:
		return register, true
	}
	legal := passes && (op.Kind != prepare.Read || op.Value == register.Value)
	register.Tokens = register.Tokens.With(op.Grant)
	if op.Kind != prepare.Read && op.Value != "" {
		register.Value = op.Value
	}
	return register, legal
}

// String describes the register for people.
func (register Register) String() string {
	return fmt.Sprintf("the gate has seen %+v, and the register has %q", register.Tokens, register.Value)
}
