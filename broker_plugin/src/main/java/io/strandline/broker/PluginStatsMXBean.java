package io.strandline.broker;

import java.util.Map;

/**
 * The plug-in's metrics, over JMX as io.strandline.broker:type=metadata|storage,broker=ID. Counts
 * are since the broker's start.
 */
public interface PluginStatsMXBean {
    /** Requests by call. */
    Map<String, Long> getRequests();

    /** Requests that failed, by kind of docs/BROKER_PROTOCOL.md, and our own four. */
    Map<String, Long> getFailures();

    /** Calls that were not sent, because the node did not answer a moment before. */
    long getRefusedByBreaker();

    long getConnectionsOpened();

    long getConnectionsIdle();

    /** Bytes of segments and indexes that the broker was given. */
    long getBytesRead();

    /** Answers that broke off or gave other bytes than they promised. */
    long getStreamsBroken();

    long getSegmentsCopied();

    /** The number of the present set of partitions; -1 for the storage manager. */
    long getSessionSeq();

    /**
     * The number of the set that the node knows. Below SessionSeq for long: see the broker's log.
     */
    long getSessionAcknowledgedSeq();

    /** Bytes of lists that are kept to be asked for by their tag. */
    long getListBytesKept();

    /** Lists that were answered with "the same". */
    long getListsUnchanged();

    /** Lists that were answered with the changes since the last time. */
    long getListsChanged();

    /** Adds and updates that wait or are under way. */
    long getChangesPending();
}
