package palisade.locks;

import io.lettuce.core.codec.RedisCodec;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.CommandWrapper;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.RedisCommand;
import io.netty.buffer.ByteBuf;
import java.util.List;

/** A command of Lettuce, sent through a gate. Its answer is that of the command, apart from refusals. */
final class FencedCommand<K, V, T> extends CommandWrapper<K, V, T> {

    private static final ProtocolKeyword GATE = new LettuceTransport.Name("LOCK.GATE");

    private final CommandArgs<K, V> arguments;

    private final Passing passing;

    FencedCommand(RedisCommand<K, V, T> command, List<String> words, RedisCodec<K, V> codec, Passing passing) {
        super(command);
        this.passing = passing;
        this.arguments = new CommandArgs<>(codec);
        words.forEach(arguments::add);
        arguments.add(command.getType());
        if (command.getArgs() != null) {
            arguments.addAll(command.getArgs());
        }
    }

    @Override
    public ProtocolKeyword getType() {
        return GATE;
    }

    @Override
    public CommandArgs<K, V> getArgs() {
        return arguments;
    }

    @Override
    public void encode(ByteBuf buffer) {
        new Command<>(GATE, getOutput(), arguments).encode(buffer);
    }

    @Override
    public void complete() {
        if (getOutput() != null && getOutput().hasError()) {
            var refused = passing.refusal(getOutput().getError());
            if (refused.isPresent()) {
                completeExceptionally(refused.get());
                return;
            }
        }
        super.complete();
    }

}
