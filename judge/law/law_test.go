package law

import "testing"

func TestGrantsGoTogetherAsTheModesSay(t *testing.T) {
	writer, reader := Grant{Mode: Exclusive}, Grant{Mode: Shared}
	permit := func(number, limit int) Grant { return Grant{Mode: Permit, Permit: number, Limit: limit}.Plain() }
	for _, test := range []struct {
		a, b   Grant
		beside bool
	}{
		{writer, writer, false},
		{writer, reader, false},
		{reader, reader, true},
		{reader, permit(1, 2), false},
		{permit(1, 2), permit(2, 2), true},
		{permit(1, 2), permit(1, 2), false},
		{permit(3, 3), permit(1, 2), false},
		{permit(3, 3), permit(1, 3), true},
		{permit(1, 1), permit(1, 1), false},
		{writer, permit(1, 2), false},
	} {
		if test.a.Beside(test.b) != test.beside || test.b.Beside(test.a) != test.beside {
			t.Errorf("%+v beside %+v must be %v", test.a, test.b, test.beside)
		}
	}
}

func TestATokenIsAboveThoseThatItsGrantConflictsWith(t *testing.T) {
	tokens := Tokens{}.
		With(Grant{Mode: Exclusive, Token: 10}).
		With(Grant{Mode: Shared, Token: 20}).
		With(Grant{Mode: Permit, Permit: 2, Token: 40}).
		With(Grant{Mode: Permit, Permit: 1, Token: 30})
	least := map[Grant]int64{
		{Mode: Exclusive}:         41,
		{Mode: Shared}:            41,
		{Mode: Permit, Permit: 1}: 31,
		{Mode: Permit, Permit: 2}: 41,
		{Mode: Permit, Permit: 3}: 21,
	}
	for grant, token := range least {
		below, above := grant, grant
		below.Token, above.Token = token-1, token
		if tokens.Admits(below) || !tokens.Admits(above) {
			t.Errorf("%+v must have at least %d", grant, token)
		}
	}
	if readers := (Tokens{Shared: 20, Exclusive: 10}); !readers.Admits(Grant{Mode: Shared, Token: 11}) {
		t.Error("readers have no order among themselves")
	}
}
