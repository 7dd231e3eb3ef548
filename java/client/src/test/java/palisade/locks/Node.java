package palisade.locks;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** One real server, with the module or without. */
public final class Node extends Server {

    private Node(int port, Path folder, List<String> more) {
        super(port, folder, command(port, folder, more));
    }

    private static List<String> command(int port, Path folder, List<String> more) {
        List<String> command = new ArrayList<>(List.of(fromEnvironment("PALISADE_SERVER", "redis-server"), "--port",
                String.valueOf(port), "--save", "", "--dir", folder.toString(), "--unixsocket", socketIn(folder).toString()));
        command.addAll(more);
        return command;
    }

    /** Starts a server with the module and no guard: nobody holds a lock of a new server. */
    public static Node start() {
        Node node = new Node(freePort(), newFolder(),
                List.of("--loadmodule", built("PALISADE_MODULE", "target/debug/libpalisade.so")));
        node.lift();
        return node;
    }

    void lift() {
        eventually("the guard is lifted", () -> say("LOCK.GUARD", "LIFT").equals(0L));
    }

    static Node withoutModule() {
        return new Node(freePort(), newFolder(), List.of());
    }

    private static Path socketIn(Path folder) {
        return folder.resolve("node.sock");
    }

    Path socket() {
        return socketIn(folder());
    }

}
