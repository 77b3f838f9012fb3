package io.strandline.broker;

import org.apache.kafka.common.errors.ReplicaNotAvailableException;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Map;
import java.util.Optional;

/**
 * The parts of Kafka's interface that not every supported broker has, found once: the flag of an
 * empty transaction index (4.0), and the exception of a storage that may work again (4.2).
 */
final class BrokerApi {
    private static final MethodHandles.Lookup LOOKUP = MethodHandles.publicLookup();
    private static final MethodType CONSTRUCTOR_OF_3_9 =
            MethodType.methodType(
                    void.class,
                    RemoteLogSegmentId.class,
                    long.class,
                    long.class,
                    long.class,
                    int.class,
                    long.class,
                    int.class,
                    Optional.class,
                    RemoteLogSegmentState.class,
                    Map.class);
    private static final MethodHandle TXN_INDEX_EMPTY = txnIndexEmptyGetter();
    private static final boolean HAS_TXN_FLAG = TXN_INDEX_EMPTY != null;
    private static final MethodHandle NEW_SEGMENT = newSegment();
    private static final MethodHandle NEW_RETRIABLE = newRetriable();

    private BrokerApi() {}

    /** The segment's metadata; a broker of 3.9 does not keep the flag. */
    static RemoteLogSegmentMetadata segment(SegmentRow row) {
        try {
            return (RemoteLogSegmentMetadata)
                    NEW_SEGMENT.invokeExact(
                            row.id(),
                            row.startOffset(),
                            row.endOffset(),
                            row.maxTimestampMs(),
                            row.brokerId(),
                            row.eventTimestampMs(),
                            row.sizeBytes(),
                            row.customMetadata(),
                            row.state(),
                            row.leaderEpochs(),
                            row.txnIndexEmpty());
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    /** False on a broker of 3.9, which does not know. */
    static boolean txnIndexEmpty(RemoteLogSegmentMetadata segment) {
        if (!HAS_TXN_FLAG) {
            return false;
        }
        try {
            return (boolean) TXN_INDEX_EMPTY.invokeExact(segment);
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    /**
     * The exception for a storage that may work again: returned where the broker has one of its own
     * for it, else thrown as the one of replicas, which it treats alike.
     */
    static RemoteStorageException retriable(String message, Throwable cause) {
        if (NEW_RETRIABLE == null) {
            throw new ReplicaNotAvailableException(message, cause);
        }
        try {
            return (RemoteStorageException) NEW_RETRIABLE.invokeExact(message, cause);
        } catch (Throwable e) {
            throw new ReplicaNotAvailableException(message, cause);
        }
    }

    /** Segments of this broker know whether their transaction index is empty. */
    static boolean hasTxnFlag() {
        return HAS_TXN_FLAG;
    }

    static boolean hasRetriable() {
        return NEW_RETRIABLE != null;
    }

    private static MethodHandle newSegment() {
        Class<?> type = RemoteLogSegmentMetadata.class;
        try {
            return LOOKUP.findConstructor(
                    type, CONSTRUCTOR_OF_3_9.appendParameterTypes(boolean.class));
        } catch (ReflectiveOperationException e) {
            return newSegmentOf39(type);
        }
    }

    private static MethodHandle newSegmentOf39(Class<?> type) {
        try {
            MethodHandle constructor = LOOKUP.findConstructor(type, CONSTRUCTOR_OF_3_9);
            return MethodHandles.dropArguments(
                    constructor, CONSTRUCTOR_OF_3_9.parameterCount(), boolean.class);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(
                    "This Kafka's RemoteLogSegmentMetadata is none of 3.9 to 4.4: use a plug-in"
                            + " that was made for this version",
                    e);
        }
    }

    private static MethodHandle txnIndexEmptyGetter() {
        try {
            return LOOKUP.findVirtual(
                    RemoteLogSegmentMetadata.class,
                    "isTxnIdxEmpty",
                    MethodType.methodType(boolean.class));
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }

    private static MethodHandle newRetriable() {
        try {
            Class<?> type =
                    Class.forName(
                            RemoteStorageException.class.getPackageName()
                                    + ".RetriableRemoteStorageException",
                            true,
                            RemoteStorageException.class.getClassLoader());
            MethodType signature = MethodType.methodType(void.class, String.class, Throwable.class);
            return LOOKUP.findConstructor(type, signature)
                    .asType(signature.changeReturnType(RemoteStorageException.class));
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }
}
