package palisade.locks;

import io.lettuce.core.RedisURI;
import java.util.Objects;
import java.util.regex.Pattern;

/** Reads addresses. Errors do not show them, since they contain the password. */
final class Address {

    private static final String THROUGH_AN_AGENT = "through a `palisade agent` that runs beside the program (docs/agent.md)";

    private static final String UNIX = "unix://";

    private static final Pattern SEVERAL = Pattern.compile("[,;\\s]\\s*(rediss?|unix)://");

    /** A list of hosts may lack the scheme. */
    private static final Pattern HOSTS = Pattern.compile("(?s)^(?:(rediss?://)(?:.*@)?|(?:[^/]*@)?)([^/?]*).*");

    private static final Pattern OTHER_KIND = Pattern.compile("^rediss?[+-](cluster|sentinel)://.*");

    private Address() {
    }

    static RedisURI parse(String address) {
        Objects.requireNonNull(address, "address");
        var hosts = HOSTS.matcher(address);
        if (SEVERAL.matcher(address).find() || hosts.matches() && hosts.group(2).contains(",")) {
            throw new IllegalArgumentException(
                    "several addresses were given, and this takes one: reach a quorum of nodes " + THROUGH_AN_AGENT);
        }
        if (OTHER_KIND.matcher(address).matches()) {
            throw notOneServer();
        }
        if (address.startsWith(UNIX)) {
            return RedisURI.Builder.socket(address.substring(UNIX.length())).build();
        }
        if (hosts.group(1) == null) {
            throw new IllegalArgumentException("the address must begin with redis://, rediss:// or unix://");
        }
        try {
            return RedisURI.create(address);
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException("the address cannot be read: redis://user:password@host:port, or unix:///path");
        }
    }

    /** Returns a copy that is of one server, and names no library: the user may lack the permission. */
    static RedisURI checked(RedisURI uri) {
        if (uri.getSentinelMasterId() != null || !uri.getSentinels().isEmpty()) {
            throw notOneServer();
        }
        return RedisURI.builder(uri).build();
    }

    private static IllegalArgumentException notOneServer() {
        return new IllegalArgumentException(
                "the address must be of one server: reach a cluster, or a master behind Sentinel, " + THROUGH_AN_AGENT);
    }

    static String shown(RedisURI uri) {
        if (uri.getSocket() != null) {
            return UNIX + uri.getSocket();
        }
        return (uri.isSsl() ? "rediss://" : "redis://") + uri.getHost() + ':' + uri.getPort();
    }

}
