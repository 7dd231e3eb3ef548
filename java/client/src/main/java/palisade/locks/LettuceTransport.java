package palisade.locks;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.resource.ClientResources;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Carries commands by Lettuce, which neither reconnects nor sends again here: a request for a lock must not be sent when
 * nobody wants it any longer, nor a release be repeated unnoticed. A connection costs no thread.
 */
final class LettuceTransport implements Transport {

    private final String address;

    private final RedisURI uri;

    private final RedisClient client;

    private final Duration answerWithin;

    /** The connection for commands that are answered at once; {@code null} before the first one. */
    private CompletableFuture<StatefulRedisConnection<String, String>> shared;

    private boolean closed;

    LettuceTransport(RedisURI uri, ClientResources resources, ClientOptions options, Duration answerWithin) {
        this.uri = uri;
        uri.setTimeout(answerWithin);
        this.address = Address.shown(uri);
        this.answerWithin = answerWithin;
        this.client = resources == null ? RedisClient.create(uri) : RedisClient.create(resources, uri);
        SocketOptions sockets = options.getSocketOptions().mutate().connectTimeout(answerWithin)
                .keepAlive(SocketOptions.KeepAliveOptions.builder().enable().idle(Duration.ofSeconds(15))
                        .interval(Duration.ofSeconds(10)).count(3).build())
                .build();
        // Each request has a limit of its own here. Lettuce would end all by that of an answer, also those that wait.
        client.setOptions(options.mutate().timeoutOptions(TimeoutOptions.create())
                .autoReconnect(false).pingBeforeActivateConnection(false)
                .protocolVersion(ProtocolVersion.RESP2).disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
                .socketOptions(sockets).build());
    }

    @Override
    public String address() {
        return address;
    }

    @Override
    public CompletableFuture<Void> prepare() {
        return shared().handle((connection, failure) -> null);
    }

    @Override
    public CompletableFuture<Object> send(List<String> words, Duration limit) {
        CompletableFuture<StatefulRedisConnection<String, String>> used = shared();
        CompletableFuture<Object> answer = new CompletableFuture<>();
        used.whenComplete((connection, failure) -> {
            if (failure != null) {
                answer.completeExceptionally(failure);
            } else if (!answer.isDone()) {
                dispatch(connection, words, answer, () -> replace(used));
            }
        });
        return within(answer, limit, () -> replace(used));
    }

    /** Completes an answer as {@link Transport} says; {@code late} runs if it does not come in time. */
    private CompletableFuture<Object> within(CompletableFuture<Object> answer, Duration limit, Runnable late) {
        CompletableFuture<Object> own = new CompletableFuture<>();
        answer.orTimeout(limit.toNanos(), TimeUnit.NANOSECONDS).whenComplete((reply, thrown) -> {
            if (thrown == null) {
                own.complete(reply);
            } else if (thrown instanceof TimeoutException) {
                late.run();
                own.completeExceptionally(
                        new UnavailableException(address + " did not answer within " + Clock.shown(limit.toNanos()), false, null));
            } else {
                own.completeExceptionally(Refusals.unwrap(thrown));
            }
        });
        return own;
    }

    private void dispatch(StatefulRedisConnection<String, String> connection, List<String> words,
            CompletableFuture<Object> answer, Runnable broken) {
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
        words.subList(1, words.size()).forEach(arguments::add);
        AsyncCommand<String, String, Object> command =
                new AsyncCommand<>(new Command<>(new Name(words.get(0)), new ReplyOutput(), arguments));
        command.whenComplete((reply, thrown) -> {
            if (thrown == null) {
                answer.complete(reply);
            } else if (Refusals.unwrap(thrown) instanceof RedisCommandExecutionException refused) {
                answer.completeExceptionally(refusal(refused.getMessage()));
            } else {
                // Lettuce says only later that the connection is not open.
                broken.run();
                answer.completeExceptionally(new UnavailableException(address + ": the connection ended", true, thrown));
            }
        });
        try {
            connection.dispatch(command);
        } catch (RuntimeException e) {
            command.completeExceptionally(e);
        }
    }

    private synchronized CompletableFuture<StatefulRedisConnection<String, String>> shared() {
        if (shared != null && shared.isDone() && (shared.isCompletedExceptionally() || !shared.join().isOpen())) {
            shared = null;
        }
        if (shared == null) {
            shared = open();
        }
        return shared;
    }

    /** Uses another connection from now on. What is pending on this one may still be answered. */
    private synchronized void replace(CompletableFuture<StatefulRedisConnection<String, String>> slow) {
        if (shared == slow) {
            shared = null;
            Executor later = CompletableFuture.delayedExecutor(answerWithin.toNanos(), TimeUnit.NANOSECONDS);
            slow.thenAcceptAsync(StatefulRedisConnection::closeAsync, later);
        }
    }

    private CompletableFuture<StatefulRedisConnection<String, String>> open() {
        CompletableFuture<StatefulRedisConnection<String, String>> opened = new CompletableFuture<>();
        synchronized (this) {
            if (closed) {
                opened.completeExceptionally(new ClosedException());
                return opened;
            }
        }
        client.connectAsync(StringCodec.UTF8, uri).whenComplete((connection, thrown) -> {
            if (thrown != null) {
                opened.completeExceptionally(ofConnecting(thrown));
            } else {
                opened.complete(connection);
            }
        });
        return opened;
    }

    /** Returns the refusal of the server where it answered, such as that of a password. */
    private PalisadeException ofConnecting(Throwable thrown) {
        Throwable last = thrown;
        for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
            last = cause;
            if (cause instanceof RedisCommandExecutionException refused) {
                return refusal(refused.getMessage());
            }
        }
        return new UnavailableException(address + " cannot be reached: " + last.getMessage(), false, thrown);
    }

    @Override
    public CompletableFuture<Connection> connect() {
        return open().thenCompose(opened -> {
            Connection connection = new Own(opened);
            // Any reply of the server shows that the connection is open: a user may lack the permission to send PING.
            return connection.send(List.of("PING"), answerWithin).handle((reply, thrown) -> {
                if (thrown != null && Refusals.unwrap(thrown) instanceof UnavailableException silent) {
                    connection.close();
                    throw silent;
                }
                return connection;
            });
        });
    }

    @Override
    public void close() {
        synchronized (this) {
            closed = true;
        }
        client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
    }

    /** A connection for commands that wait. */
    private final class Own implements Connection {

        private final StatefulRedisConnection<String, String> connection;

        private volatile boolean ended;

        Own(StatefulRedisConnection<String, String> connection) {
            this.connection = connection;
        }

        @Override
        public CompletableFuture<Object> send(List<String> words, Duration limit) {
            CompletableFuture<Object> answer = new CompletableFuture<>();
            dispatch(connection, words, answer, this::close);
            // The request's place in the queue ends with the connection.
            return within(answer, limit, this::close);
        }

        @Override
        public boolean isOpen() {
            return !ended && connection.isOpen();
        }

        @Override
        public void close() {
            ended = true;
            if (connection.isOpen()) {
                connection.closeAsync();
            }
        }

    }

    /** The name of a command. */
    record Name(String text) implements ProtocolKeyword {

        @Override
        public byte[] getBytes() {
            return text.getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public String toString() {
            return text;
        }

    }

}
