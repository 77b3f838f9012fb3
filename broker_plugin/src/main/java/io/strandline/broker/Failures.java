package io.strandline.broker;

import io.strandline.broker.NodeException.Kind;

import org.apache.kafka.common.errors.FencedLeaderEpochException;
import org.apache.kafka.common.errors.ReplicaNotAvailableException;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/**
 * Whatever went wrong becomes one of the exceptions that a broker survives (the last table of
 * docs/BROKER_PROTOCOL.md). Any other would end a task or a consumer for good.
 */
final class Failures {
    private Failures() {}

    /** Of a look-up or a list: thrown as "the replica is not available", unless it is gone. */
    static RemoteStorageException ofLookUp(Throwable problem) {
        if (problem instanceof NodeException failure && failure.is(Kind.NOT_FOUND, "GONE")) {
            return new RemoteResourceNotFoundException(text(problem), problem);
        }
        throw unavailable(problem);
    }

    static ReplicaNotAvailableException unavailable(Throwable problem) {
        return new ReplicaNotAvailableException(text(problem), problem);
    }

    /** Of an add or update: what its future fails with. */
    static Exception ofChange(Throwable problem) {
        if (!(problem instanceof NodeException failure) || failure.temporary()) {
            return unavailable(problem);
        }
        if (failure.kind() == Kind.FENCED) {
            return new FencedLeaderEpochException(text(problem), problem);
        }
        if (failure.kind() == Kind.NOT_FOUND && !failure.reason().equals("GONE")) {
            return unavailable(problem);
        }
        return lasting(failure, "GONE");
    }

    /** Of a copy, a read of a segment, or a delete. */
    static RemoteStorageException ofStorage(Throwable problem) {
        return ofStorage(problem, "GONE");
    }

    /**
     * Of an index: only "there is no such index" is that, as a broker keeps this answer on disk.
     */
    static RemoteStorageException ofIndex(Throwable problem) {
        return ofStorage(problem, "NO_SUCH_INDEX");
    }

    private static RemoteStorageException ofStorage(Throwable problem, String absence) {
        if (problem instanceof IllegalArgumentException) {
            return new RemoteStorageException(text(problem), problem);
        }
        if (!(problem instanceof NodeException failure) || failure.temporary()) {
            return BrokerApi.retriable(text(problem), problem);
        }
        boolean told = failure.reason().equals("GONE") || failure.reason().equals("NO_SUCH_INDEX");
        if (failure.kind() == Kind.NOT_FOUND && !told) {
            return BrokerApi.retriable(text(problem), problem);
        }
        return lasting(failure, absence);
    }

    private static RemoteStorageException lasting(NodeException failure, String absence) {
        return failure.is(Kind.NOT_FOUND, absence)
                ? new RemoteResourceNotFoundException(text(failure), failure)
                : new RemoteStorageException(text(failure), failure);
    }

    private static String text(Throwable problem) {
        return problem instanceof NodeException
                ? "Strandline node: " + problem.getMessage()
                : "Strandline plug-in: " + problem;
    }
}
