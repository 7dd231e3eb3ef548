package palisade.locks;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

/** The clients of two programs, on a node that the tests of a class share. */
public abstract class TwoPrograms {

    protected static Node node;

    protected static Palisade here;

    protected static Palisade there;

    /** A name that no other test uses. */
    protected final String name = Server.newKey();

    @BeforeAll
    public static void start() {
        node = Node.start();
        here = Palisade.open(node.url());
        there = Palisade.open(node.url());
    }

    @AfterAll
    public static void end() {
        here.close();
        there.close();
        node.close();
    }
}
