package palisade.locks;

import io.lettuce.core.RedisChannelWriter;
import io.lettuce.core.RedisException;
import io.lettuce.core.StatefulRedisConnectionImpl;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.push.PushListener;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.api.sync.RedisClusterCommands;
import io.lettuce.core.protocol.ConnectionFacade;
import io.lettuce.core.protocol.PushHandler;
import io.lettuce.core.protocol.RedisCommand;
import io.lettuce.core.resource.ClientResources;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** A connection of Lettuce whose commands go through a gate, over the connection of the user. */
final class FencedConnection<K, V> extends StatefulRedisConnectionImpl<K, V> {

    FencedConnection(StatefulConnection<K, V> data, Passing passing) {
        super(new Writer<>(data, passing), new NoPushes(), data.getCodec(), data.getTimeout());
        setOptions(data.getOptions());
    }

    /**
     * Returns commands that throw refusals as they are: Lettuce puts an exception of its own around those of others.
     */
    @Override
    protected RedisCommands<K, V> newRedisSyncCommandsImpl() {
        RedisCommands<K, V> commands = super.newRedisSyncCommandsImpl();
        Object unwrapping = Proxy.newProxyInstance(RedisCommands.class.getClassLoader(),
                new Class<?>[] {RedisCommands.class, RedisClusterCommands.class}, (proxy, method, arguments) -> {
                    try {
                        return method.invoke(commands, arguments);
                    } catch (InvocationTargetException e) {
                        Throwable thrown = e.getCause();
                        throw thrown instanceof RedisException && thrown.getCause() instanceof PalisadeException known ? known : thrown;
                    }
                });
        @SuppressWarnings("unchecked")
        RedisCommands<K, V> typed = (RedisCommands<K, V>) unwrapping;
        return typed;
    }

    /** Sends commands over the connection of the user, which stays open. */
    private record Writer<A, B>(StatefulConnection<A, B> data, Passing passing) implements RedisChannelWriter {

        @Override
        public <K, V, T> RedisCommand<K, V, T> write(RedisCommand<K, V, T> command) {
            try {
                List<String> words = passing.words();
                @SuppressWarnings("unchecked")
                StatefulConnection<K, V> typed = (StatefulConnection<K, V>) data;
                typed.dispatch(new FencedCommand<>(command, words, typed.getCodec(), passing));
            } catch (PalisadeException refused) {
                command.completeExceptionally(refused);
            }
            return command;
        }

        @Override
        public <K, V> Collection<RedisCommand<K, V, ?>> write(Collection<? extends RedisCommand<K, V, ?>> commands) {
            List<RedisCommand<K, V, ?>> written = new ArrayList<>();
            commands.forEach(command -> written.add(write(command)));
            return written;
        }

        @Override
        public void close() {
            // The connection is the user's.
        }

        @Override
        public CompletableFuture<Void> closeAsync() {
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public void setConnectionFacade(ConnectionFacade facade) {
            // Events are those of the user's connection.
        }

        @Override
        public void setAutoFlushCommands(boolean flush) {
            data.setAutoFlushCommands(flush);
        }

        @Override
        public void flushCommands() {
            data.flushCommands();
        }

        @Override
        public ClientResources getClientResources() {
            return data.getResources();
        }

    }

    /** Receives no push messages: those go to the user's connection. */
    private static final class NoPushes implements PushHandler {

        @Override
        public void addListener(PushListener listener) {
            throw new UnsupportedOperationException("listen on the connection itself");
        }

        @Override
        public void removeListener(PushListener listener) {
            // There are none.
        }

        @Override
        public Collection<PushListener> getPushListeners() {
            return List.of();
        }

    }

}
