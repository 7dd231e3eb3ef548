package palisade.locks;

import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/** Reads any answer in RESP2: Null, an integer, a text, or a list of these. */
final class ReplyOutput extends CommandOutput<String, String, Object> {

    /** Lists that are not complete, and how many elements each will have. */
    private final Deque<List<Object>> open = new ArrayDeque<>();

    private final Deque<Integer> sizes = new ArrayDeque<>();

    ReplyOutput() {
        super(StringCodec.UTF8, null);
    }

    @Override
    public void set(ByteBuffer bytes) {
        add(bytes == null ? null : StringCodec.UTF8.decodeValue(bytes));
    }

    @Override
    public void set(long integer) {
        add(integer);
    }

    @Override
    public void multi(int count) {
        if (count < 0) {
            add(null);
            return;
        }
        List<Object> list = new ArrayList<>();
        add(list);
        if (count > 0) {
            open.push(list);
            sizes.push(count);
        }
    }

    private void add(Object value) {
        if (open.isEmpty()) {
            output = value;
            return;
        }
        open.peek().add(value);
        // A list is complete once its last element is; that may complete the list around it.
        while (!(value instanceof List<?> begun && begun.isEmpty()) && !open.isEmpty() && open.peek().size() == sizes.peek()) {
            value = open.pop();
            sizes.pop();
        }
    }

}
