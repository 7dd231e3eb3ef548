package palisade.locks;

import java.util.function.Consumer;

/** Calls a {@link LockListener}, whose failures are not those of locks. */
record Listening(LockListener listener) {

    private static final System.Logger LOGGER = System.getLogger(Listening.class.getName());

    void report(Consumer<LockListener> what) {
        try {
            what.accept(listener);
        } catch (RuntimeException e) {
            LOGGER.log(System.Logger.Level.WARNING, "a listener of locks failed", e);
        }
    }

}
