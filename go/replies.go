package locks

import (
	"fmt"
	"time"
)

// The largest token of a server, so that programs in every language can hold it exactly.
const integerMax = 1<<53 - 1

// granted is the answer to an acquisition: its token, the wait, and the number of a permit (0 if it is none).
type granted struct {
	token  int64
	waited time.Duration
	number int
}

func unexpected(reply any, belongs string) error {
	return &failure{kind: ErrUnexpectedReply, message: fmt.Sprintf("the server answered %.100q where %s belongs", fmt.Sprint(reply), belongs)}
}

// toInteger returns an integer below 2^53: a program in another language could round a larger one to somebody else's token.
func toInteger(reply any) (int64, error) {
	if value, ok := reply.(int64); ok && value >= 0 && value <= integerMax {
		return value, nil
	}
	return 0, unexpected(reply, "an integer below 2^53")
}

// toGranted reads the answer to LOCK.ACQUIRE, which is a token, or a list of two or three integers.
func toGranted(reply any) (granted, error) {
	list, ok := reply.([]any)
	if !ok {
		list = []any{reply}
	}
	numbers := [3]int64{}
	if len(list) == 0 || len(list) > len(numbers) {
		return granted{}, unexpected(reply, "a grant")
	}
	for at, one := range list {
		number, err := toInteger(one)
		if err != nil {
			return granted{}, err
		}
		numbers[at] = number
	}
	return granted{token: numbers[0], waited: time.Duration(numbers[1]) * time.Millisecond, number: int(numbers[2])}, nil
}

// toFields returns the fields of a map, which is a flat list in RESP2; nil for Null.
func toFields(reply any) (map[string]any, error) {
	fields := map[string]any{}
	switch reply := reply.(type) {
	case nil:
		return nil, nil
	case map[any]any:
		for name, value := range reply {
			fields[fmt.Sprint(name)] = value
		}
	case []any:
		for at := 0; at+1 < len(reply); at += 2 {
			fields[fmt.Sprint(reply[at])] = reply[at+1]
		}
	default:
		return nil, unexpected(reply, "a map")
	}
	return fields, nil
}

// toHolder returns the holder in an answer to LOCK.INFO; nil if there is none.
func toHolder(reply any) (*Holder, error) {
	fields, err := toFields(reply)
	if fields == nil || err != nil {
		return nil, err
	}
	var numbers [3]int64
	for at, name := range []string{"token", "held", "ttl"} {
		if numbers[at], err = toInteger(fields[name]); err != nil {
			return nil, err
		}
		if name == "token" && numbers[at] == 0 {
			return nil, nil
		}
	}
	note, ok := fields["note"].(string)
	if !ok {
		return nil, unexpected(fields["note"], "a note")
	}
	return &Holder{
		Note:      withoutHolder(note),
		Token:     numbers[0],
		HeldFor:   time.Duration(numbers[1]) * time.Millisecond,
		LeaseLeft: time.Duration(numbers[2]) * time.Millisecond,
	}, nil
}
