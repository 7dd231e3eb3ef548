import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.UUID;
import java.util.function.Supplier;

/** Locks of Redisson and Curator, driven by palisade-bench: each line of standard input is a question in JSON. */
public final class Peers {
    /** The number of threads that take locks before anything is measured, so that the JVM has compiled what they run. */
    private static final int WARM_UP_TASKS = 8;

    private Supplier<Locks> newLocks;
    /** The client that all threads use, with its default settings. */
    private Locks shared;
    private Slice slice;
    private Round round;

    private Object answer(JsonObject question) throws Exception {
        switch (question.get("do").getAsString()) {
            case "hello" -> {
                return hello(question);
            }
            case "hold" -> shared.of().apply(question.get("name").getAsString()).acquire().run();
            case "slice" -> {
                int tasks = question.get("tasks").getAsInt();
                return slice.run(tasks, question.get("ms").getAsLong(), question.get("most_s").getAsLong());
            }
            case "start" -> {
                JsonArray hold = question.getAsJsonArray("hold_s");
                int waiters = question.get("waiters").getAsInt();
                String name = question.get("name").getAsString();
                round = new Round(newLocks, name, waiters, hold.get(0).getAsDouble(), hold.get(1).getAsDouble());
            }
            case "go" -> round.begin();
            case "result" -> {
                return round.result();
            }
            default -> throw new IllegalArgumentException(question.toString());
        }
        return Map.of();
    }

    private Object hello(JsonObject question) throws Exception {
        int[] ports = new Gson().fromJson(question.get("ports"), int[].class);
        int ttlMs = question.get("ttl_ms").getAsInt();
        String client = question.get("client").getAsString();
        newLocks = () -> Locks.of(client, ports, ttlMs, false);
        shared = Locks.of(client, ports, ttlMs, true);
        slice = new Slice(shared);
        long warmUpMs = question.get("warm_up_ms").getAsLong();
        if (warmUpMs > 0) {
            slice.run(WARM_UP_TASKS, warmUpMs, 2);
            Round warmUp = new Round(newLocks, "warm-up-" + UUID.randomUUID(), WARM_UP_TASKS, 0, 0);
            warmUp.begin();
            Thread.sleep(warmUpMs);
            warmUp.result();
        }
        return Map.of("version", shared.version() + ", Java " + System.getProperty("java.version"));
    }

    /** Answers until nobody asks any longer. */
    public static void main(String[] args) throws Exception {
        Gson json = new Gson();
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        Peers peers = new Peers();
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            System.out.println(json.toJson(peers.answer(json.fromJson(line, JsonObject.class))));
        }
        System.exit(0);
    }
}
