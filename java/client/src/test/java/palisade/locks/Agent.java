package palisade.locks;

import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** A real agent, with five nodes behind it. */
public final class Agent extends Server {

    private static final Pattern WAITING = Pattern.compile("(?m)^waiting:(\\d+)");

    private final List<Node> nodes;

    private Agent(int port, Path folder, List<Node> nodes) {
        super(port, folder, List.of(built("PALISADE_PROGRAM", "target/debug/palisade"), "agent", "--listen", "127.0.0.1:" + port,
                "--nodes", nodes.stream().map(Node::url).collect(Collectors.joining(",")),
                // The machine of the tests may be busy.
                "--node-timeout", "500ms"));
        this.nodes = nodes;
    }

    /** Starts an agent, and five nodes. */
    public static Agent start() {
        return new Agent(freePort(), newFolder(), Stream.generate(Node::start).limit(5).toList());
    }

    List<Node> nodes() {
        return nodes;
    }

    /** Returns how many wait for all locks: an agent stands in the queues of its nodes once for all of them. */
    @Override
    public long waiters(String key) {
        Matcher found = WAITING.matcher(String.valueOf(say("INFO", "palisade")));
        return found.find() ? Long.parseLong(found.group(1)) : -1;
    }

    @Override
    public void close() {
        super.close();
        nodes.forEach(Node::close);
    }

}
