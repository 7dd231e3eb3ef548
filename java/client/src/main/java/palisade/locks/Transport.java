package palisade.locks;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * Carries commands to one address. It sends each command once, or not at all: repetitions have rules of their own above
 * it. {@link Palisade} has one on Lettuce; tests have one in memory.
 * <p>
 * An answer is {@code null} for Null, a {@link Long}, a {@link String}, or a {@link List} of these. An error reply is
 * what {@link #refusal} makes of it, anything else an {@link UnavailableException}.
 */
public interface Transport {

    /**
     * Returns the address as people read it, without a password.
     *
     * @return the address
     */
    String address();

    /**
     * Opens the connection of {@link #send}, unless it is open. The time that takes does not count for a lease.
     *
     * @return completed once that was tried; {@link #send} reports how it went
     */
    default CompletableFuture<Void> prepare() {
        return CompletableFuture.completedFuture(null);
    }

    /**
     * Sends a command that is answered at once.
     *
     * @param words the command and its arguments
     * @param limit the time for the answer
     * @return the answer
     */
    CompletableFuture<Object> send(List<String> words, Duration limit);

    /**
     * Opens a connection for commands that wait.
     *
     * @return the connection, once the server has answered on it
     */
    CompletableFuture<Connection> connect();

    /**
     * Sets the listener for locks that were taken away, if this transport can learn of that.
     *
     * @param listener receives their names
     */
    default void onTakenAway(Consumer<String> listener) {
    }

    /** Closes all connections. */
    void close();

    /**
     * Converts an error reply.
     *
     * @param reply the whole reply
     * @return the exception of its first word
     */
    default PalisadeException refusal(String reply) {
        return Refusals.of(reply, address());
    }

    /** A connection for commands that wait, one at a time. It never connects again by itself. */
    interface Connection {

        /**
         * Sends a command.
         *
         * @param words the command and its arguments
         * @param limit the time for the answer
         * @return the answer
         */
        CompletableFuture<Object> send(List<String> words, Duration limit);

        /**
         * Reports whether commands can be sent.
         *
         * @return whether it is open
         */
        boolean isOpen();

        /** Closes the connection at once. A pending command fails. */
        void close();

    }

}
