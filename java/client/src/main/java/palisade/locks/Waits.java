package palisade.locks;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.function.Consumer;

/** Hands the results of futures to callers, blocking or not. */
final class Waits {

    private Waits() {
    }

    /** Waits for an answer that is limited in time. An interruption waits until then. */
    static <T> T join(CompletableFuture<T> future) {
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    return future.get();
                } catch (InterruptedException e) {
                    interrupted = true;
                } catch (ExecutionException e) {
                    throw thrown(e);
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Waits for something that may take long; an interruption gives it up by {@code cancel}. */
    static <T> T get(CompletableFuture<T> future, Consumer<Throwable> cancel) throws InterruptedException {
        try {
            return future.get();
        } catch (InterruptedException e) {
            cancel.accept(e);
            throw e;
        } catch (ExecutionException e) {
            throw thrown(e);
        }
    }

    private static RuntimeException thrown(ExecutionException e) {
        Throwable failure = Refusals.unwrap(e);
        if (failure instanceof PalisadeException known) {
            // Where the caller was says more than which thread received the answer.
            known.fillInStackTrace();
            return known;
        }
        return failure instanceof RuntimeException known ? known : new PalisadeException(String.valueOf(failure.getMessage()), failure);
    }

    /** Adds the name of the lock to failures. */
    static <T> CompletableFuture<T> named(String key, CompletableFuture<T> future) {
        return future.exceptionally(thrown -> {
            Throwable failure = Refusals.unwrap(thrown);
            throw failure instanceof PalisadeException known ? known.of(key) : new CompletionException(failure);
        });
    }

    /** Returns a future that completes on a thread that the caller may block, without what futures put around failures. */
    static <T> CompletableFuture<T> forCaller(CompletableFuture<T> future, Executor executor) {
        return forCaller(future, executor, () -> {
        });
    }

    /**
     * Returns a future that completes on a thread that the caller may block. If somebody else completes it before, as
     * {@link CompletableFuture#orTimeout} does, nobody receives the result: {@code giveUp} is called, at once and again when
     * the result is there.
     */
    static <T> CompletableFuture<T> forCaller(CompletableFuture<T> future, Executor executor, Runnable giveUp) {
        CompletableFuture<T> own = new CompletableFuture<>();
        own.whenComplete((result, thrown) -> {
            if (!future.isDone()) {
                giveUp.run();
            }
        });
        future.whenCompleteAsync((result, thrown) -> {
            boolean received = thrown == null ? own.complete(result) : own.completeExceptionally(Refusals.unwrap(thrown));
            if (!received) {
                giveUp.run();
            }
        }, executor);
        return own;
    }

}
