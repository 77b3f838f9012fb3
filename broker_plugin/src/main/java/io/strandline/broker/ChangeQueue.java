package io.strandline.broker;

import java.io.Closeable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Sends changes on threads of its own. Each future ends: with the change done, or with why not,
 * also when the queue is full or closed.
 */
final class ChangeQueue implements Closeable {
    static final int THREADS_MAX = 8;

    /** A deleted topic changes each of its segments at once. */
    private static final int WAITING_MAX = 200_000;

    private final ThreadPoolExecutor executor =
            new ThreadPoolExecutor(
                    THREADS_MAX,
                    THREADS_MAX,
                    10,
                    TimeUnit.SECONDS,
                    new LinkedBlockingQueue<>(WAITING_MAX),
                    task -> ConnectionPool.daemon(task, "strandline-changes"));

    ChangeQueue() {
        executor.allowCoreThreadTimeOut(true);
    }

    /** Sends one change. */
    interface Work {
        void run() throws Exception;
    }

    private record Change(Work work, CompletableFuture<Void> future) implements Runnable {
        @Override
        public void run() {
            try {
                work.run();
                future.complete(null);
            } catch (Throwable e) {
                future.completeExceptionally(Failures.ofChange(e));
            }
        }

        void refuse(String why) {
            future.completeExceptionally(Failures.ofChange(new RejectedExecutionException(why)));
        }
    }

    CompletableFuture<Void> send(Work work) {
        Change change = new Change(work, new CompletableFuture<>());
        try {
            executor.execute(change);
        } catch (RejectedExecutionException e) {
            change.refuse("Closed, or " + WAITING_MAX + " changes wait already");
        }
        return change.future;
    }

    long pending() {
        return executor.getQueue().size() + executor.getActiveCount();
    }

    @Override
    public void close() {
        for (Runnable waiting : executor.shutdownNow()) {
            ((Change) waiting).refuse("The broker stops");
        }
    }
}
