// Package switches lets the fake for unit tests reach into a client.
package switches

// TakeAway makes a client lose its locks of this key, as if somebody had taken them away.
var TakeAway func(client any, key string)
