package palisade.locks;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.protocol.CommandArgs;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** The driver of the package for Java: conformance/README.md, "Drivers", describes its requests and answers. */
final class Driver {

    private static final Gson GSON = new GsonBuilder().serializeNulls().create();

    private static final Map<Class<?>, String> WORDS = Map.of(NoQuorumException.class, "unavailable", UnavailableException.class,
            "unavailable", MisconfiguredException.class, "misconfigured", IllegalArgumentException.class, "bad-argument",
            UnexpectedReplyException.class, "unexpected-reply", ClosedException.class, "closed", ServerException.class, "server",
            CancellationException.class, "cancelled");

    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private final ExecutorService threads = Executors.newCachedThreadPool();

    private final Map<String, LockHandle> held = new ConcurrentHashMap<>();

    private final Map<Integer, CompletableFuture<?>> waits = new ConcurrentHashMap<>();

    private final Map<String, LockGroup> groups = new ConcurrentHashMap<>();

    private Palisade locks;

    /** Another client, which adopts locks. */
    private Palisade adopter;

    private RedisClient data;

    private StatefulRedisConnection<String, String> connection;

    public static void main(String[] args) throws IOException {
        Driver driver = new Driver();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = lines.readLine()) != null) {
            JsonObject asked = GSON.fromJson(line, JsonObject.class);
            try {
                driver.perform(asked);
            } catch (RuntimeException e) {
                driver.answer(asked, failed(e));
            }
        }
        System.exit(0);
    }

    private synchronized void answer(JsonObject asked, Map<String, Object> said) {
        said.put("id", asked.get("id").getAsInt());
        out.println(GSON.toJson(said));
        out.flush();
    }

    private void perform(JsonObject asked) {
        switch (asked.get("do").getAsString()) {
            case "open" -> open(asked);
            case "lock", "read", "write", "permit" -> take(asked);
            case "cancel" -> {
                waits.get(asked.get("of").getAsInt()).cancel(true);
                answer(asked, new HashMap<>());
            }
            case "close" -> threads.execute(() -> {
                locks.close();
                answer(asked, new HashMap<>());
            });
            case "once", "campaign", "leader", "all", "release_all" -> threads.execute(() -> build(asked));
            case "downgrade", "look", "extend", "reenter", "release", "leave", "until_lost", "gated", "resign", "adopt" -> {
                LockHandle lock = held.get(asked.get("of").getAsString());
                threads.execute(() -> use(asked, lock));
            }
            default -> answer(asked, new HashMap<>(Map.of("error", "unsupported")));
        }
    }

    private void open(JsonObject asked) {
        Palisade before = locks;
        Palisade adopterBefore = adopter;
        RedisClient dataBefore = data;
        String address = asked.get("address").getAsString();
        locks = open(address);
        adopter = open(address);
        data = RedisClient.create(Address.parse(address));
        connection = null;
        held.clear();
        if (before != null) {
            threads.execute(before::close);
            threads.execute(adopterBefore::close);
            threads.execute(dataBefore::shutdown);
        }
        answer(asked, new HashMap<>());
    }

    private static Palisade open(String address) {
        // Ten seconds, since the machine that runs the scenarios may be busy.
        return Palisade.builder(address).answerWithin(Duration.ofSeconds(10)).build();
    }

    private void take(JsonObject asked) {
        LockOptions options = ttl(asked);
        if (asked.has("wait_ms")) {
            options = options.waitUpTo(Duration.ofMillis(asked.get("wait_ms").getAsLong()));
        }
        if (asked.has("note")) {
            options = options.note(asked.get("note").getAsString());
        }
        if (asked.has("extend")) {
            options = options.autoExtend(asked.get("extend").getAsBoolean());
        }
        String key = asked.get("key").getAsString();
        CompletableFuture<LockHandle> lock = switch (asked.get("do").getAsString()) {
            case "read" -> locks.readLockAsync(key, options);
            case "permit" -> locks.semaphore(key, asked.get("limit").getAsInt()).acquireAsync(options);
            default -> locks.lockAsync(key, options);
        };
        waits.put(asked.get("id").getAsInt(), lock);
        lock.whenComplete((taken, thrown) -> answer(asked, thrown == null ? named(asked, taken) : failed(thrown)));
    }

    /** Performs requests about groups of locks, elections and the like. */
    private void build(JsonObject asked) {
        Map<String, Object> said = new HashMap<>();
        try {
            switch (asked.get("do").getAsString()) {
                case "once" -> {
                    Duration least = Duration.ofMillis(asked.get("min_hold_ms").getAsLong());
                    said.put("ran", locks.once(asked.get("key").getAsString(), least, lock -> true).isPresent());
                }
                case "campaign" -> {
                    Leadership led = locks.election(asked.get("key").getAsString()).campaign(asked.get("value").getAsString(), ttl(asked));
                    held.put(asked.get("as").getAsString(), led.lock());
                    said.put("term", led.term());
                }
                case "leader" -> {
                    Optional<Leader> leader = locks.election(asked.get("key").getAsString()).leader();
                    said.put("value", leader.map(Leader::value).orElse(null));
                    leader.ifPresent(one -> said.put("term", one.term()));
                }
                case "all" -> groups.put(asked.get("as").getAsString(), locks.lockAll(texts(asked.get("keys")), ttl(asked)));
                default -> groups.remove(asked.get("of").getAsString()).close();
            }
            answer(asked, said);
        } catch (RuntimeException e) {
            answer(asked, failed(e));
        } catch (InterruptedException e) {
            answer(asked, failed(new CancellationException()));
        }
    }

    private static List<String> texts(JsonElement list) {
        return list.getAsJsonArray().asList().stream().map(JsonElement::getAsString).toList();
    }

    private static LockOptions ttl(JsonObject asked) {
        LockOptions options = LockOptions.defaults();
        return asked.has("ttl_ms") ? options.ttl(Duration.ofMillis(asked.get("ttl_ms").getAsLong())) : options;
    }

    /** Hands a lock over to the other client. A lock that was already released cannot be handed over. */
    private LockHandle adopt(LockHandle lock) {
        return adopter.adopt(lock.isValid() ? lock.handOver() : new HandOver(lock.key(), lock.owner(), lock.token()));
    }

    private Object gated(JsonObject asked, LockHandle lock) {
        synchronized (this) {
            if (connection == null) {
                connection = data.connect();
            }
        }
        Gate gate = asked.has("held") ? Gate.HELD : Gate.named(asked.get("gate").getAsString());
        List<String> words = texts(asked.get("words"));
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
        words.subList(1, words.size()).forEach(arguments::add);
        return lock.fenced(connection, gate).sync().dispatch(new LettuceTransport.Name(words.get(0)), new ReplyOutput(), arguments);
    }

    private Map<String, Object> named(JsonObject asked, LockHandle lock) {
        held.put(asked.get("as").getAsString(), lock);
        Map<String, Object> said = new LinkedHashMap<>(Map.of("token", lock.token()));
        if (lock.number() > 0) {
            said.put("number", lock.number());
        }
        return said;
    }

    private void use(JsonObject asked, LockHandle lock) {
        Map<String, Object> said = new HashMap<>();
        try {
            switch (asked.get("do").getAsString()) {
                case "look" -> {
                    Duration valid = lock.validFor();
                    said.putAll(Map.of("valid_for_ms", valid.toNanos() / 1e6, "valid", !valid.isZero(), "token", lock.token()));
                }
                case "extend" -> lock.extend();
                case "downgrade" -> lock.downgrade();
                case "resign" -> lock.close();
                case "adopt" -> said = named(asked, adopt(lock));
                case "gated" -> said.put("said", gated(asked, lock));
                case "reenter" -> said = named(asked, lock.reenter());
                case "release" -> {
                    Release outcome = lock.release();
                    said.put("was_held", outcome == Release.UNKNOWN ? null : outcome == Release.HELD);
                }
                case "leave" -> {
                    lock.close();
                    said.put("left", true);
                }
                default -> said.put("reason", lock.lost().join().reason().name().toLowerCase(Locale.ROOT).replace('_', '-'));
            }
        } catch (CancellationException e) {
            // A lock that is released is never lost.
            return;
        } catch (RuntimeException e) {
            said = failed(e);
        }
        answer(asked, said);
    }

    private static Map<String, Object> failed(Throwable thrown) {
        Throwable failure = Refusals.unwrap(thrown);
        Map<String, Object> said = new HashMap<>();
        said.put("message", failure.getMessage());
        if (failure instanceof NotAcquiredException refused) {
            said.put("error", "not-acquired");
            said.put("reason", refused.reason().name().toLowerCase(Locale.ROOT).replace('_', '-'));
            refused.holder().ifPresent(holder -> said.put("holder", holder.note()));
        } else if (failure instanceof LockLostException lost) {
            said.put("error", "lost");
            said.put("reason", lost.loss().reason().name().toLowerCase(Locale.ROOT).replace('_', '-'));
        } else if (failure instanceof FencedException fenced) {
            said.put("error", "fenced");
            said.put("seen", fenced.seen());
        } else if (failure instanceof ReleasedException) {
            said.put("error", "lost");
        } else if (failure instanceof GuardedException guarded) {
            said.put("error", "guarded");
            said.put("retry_after_ms", guarded.retryAfter().toMillis());
        } else {
            said.put("error", WORDS.getOrDefault(failure.getClass(), "other"));
        }
        return said;
    }

}
