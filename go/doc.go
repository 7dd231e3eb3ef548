// Package locks holds locks with fencing tokens, read locks, semaphores and elections on a Redis or Valkey server with the Palisade
// module, or on several servers by a `palisade agent`.
//
// A lock waits in the server's queue, is extended in the background until [Lock.Unlock], and has a [Lock.Context] that is
// cancelled when it is lost. No check on this side can catch a process that is paused right after it: give [Lock.Token] to
// the resource, which refuses a smaller token than it has seen.
package locks
