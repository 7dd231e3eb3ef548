package locks

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	throughAnAgent = "through a `palisade agent` that runs beside the program (docs/agent.md)"
	notOneServer   = "the address must be of one server: reach a cluster, or a master behind Sentinel, " + throughAnAgent
	// The address that go-redis gives to a client of Sentinels.
	failoverAddress = "FailoverClient"
)

var (
	severalPattern   = regexp.MustCompile(`[,;\s]\s*(rediss?|unix)://`)
	otherKindPattern = regexp.MustCompile(`^rediss?\+(cluster|sentinel)://`)
	schemePattern    = regexp.MustCompile(`^(rediss?|unix)://`)
	// A list of hosts may lack the scheme.
	hostsPattern = regexp.MustCompile(`(?s)^(?:rediss?://(?:.*@)?|(?:[^/]*@)?)([^/?]*)`)
)

// optionsOfURL returns the connection options of an address. Errors do not show it, since it contains the password.
func optionsOfURL(address string) (*redis.Options, error) {
	hosts := hostsPattern.FindStringSubmatch(address)
	switch {
	case severalPattern.MatchString(address), hosts != nil && strings.Contains(hosts[1], ","):
		return nil, badArgument("several addresses were given, and this takes one: reach a quorum of nodes %s", throughAnAgent)
	case otherKindPattern.MatchString(address):
		return nil, badArgument(notOneServer)
	case !schemePattern.MatchString(address):
		return nil, badArgument("the address must begin with redis://, rediss:// or unix://")
	}
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, badArgument("the address cannot be read: redis://user:password@host:port, or unix:///path")
	}
	return connecting(options), nil
}

// optionsOfClient returns the connection options of a client of go-redis.
func optionsOfClient(client *redis.Client) (*redis.Options, error) {
	if client == nil {
		return nil, badArgument("the client must not be nil")
	}
	options := client.Options()
	if options.Addr == failoverAddress {
		return nil, badArgument(notOneServer)
	}
	return connecting(options), nil
}

// connecting returns the options that say how to connect. Other ones belong to their client alone: its pool, its retries,
// its cache.
func connecting(from *redis.Options) *redis.Options {
	return &redis.Options{
		Network: from.Network, Addr: from.Addr, Dialer: from.Dialer, TLSConfig: from.TLSConfig,
		Username: from.Username, Password: from.Password,
		CredentialsProvider:          from.CredentialsProvider,
		CredentialsProviderContext:   from.CredentialsProviderContext,
		StreamingCredentialsProvider: from.StreamingCredentialsProvider,
		ClientName:                   from.ClientName, DB: from.DB, Protocol: from.Protocol, OnConnect: from.OnConnect,
		// A command is sent once: a repetition has its own rules here.
		MaxRetries: -1, DialerRetries: 1,
		// The deadline of each command is that of its context.
		ContextTimeoutEnabled: true, ReadTimeout: -1, WriteTimeout: -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// shownAddress returns the address, without passwords.
func shownAddress(options *redis.Options) string {
	if options.Network == "unix" {
		return "unix://" + options.Addr
	}
	return (&url.URL{Scheme: "redis", Host: options.Addr}).String()
}
