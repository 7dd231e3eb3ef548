package sweep

import (
	"strings"
	"testing"

	"palisade/judge/law"
	"palisade/judge/prepare"
)

func grant(owner int, token int64, mode law.Mode, from int64) prepare.Op {
	return prepare.Op{Kind: prepare.Acquire, Grant: law.Grant{Owner: owner, Token: token, Mode: mode}, Call: from, Return: from + 1}
}

func end(of prepare.Op, at int64) prepare.Op {
	return prepare.Op{Kind: prepare.Expire, Grant: of.Grant, Call: at, Return: at}
}

func TestTheSweepSaysWhatIsWrong(t *testing.T) {
	writer, reader, late := grant(0, 5, law.Exclusive, 0), grant(1, 6, law.Shared, 10), grant(2, 4, law.Shared, 200)
	for says, ops := range map[string][]prepare.Op{
		"two holders":         {writer, end(writer, 100), reader, end(reader, 110)},
		"a token that is not": {writer, end(writer, 100), late, end(late, 300)},
		"":                    {writer, end(writer, 11), reader, end(reader, 110)},
	} {
		found := strings.Join(Accusations(prepare.Segment{Ops: ops, Owners: []string{"a", "b", "c"}}), "; ")
		if (found == "") != (says == "") || !strings.Contains(found, says) {
			t.Errorf("%q is not %q", found, says)
		}
	}
}
