package io.strandline.suites;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.ClassLoaderAwareRemoteStorageManager;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorage;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/**
 * Our storage manager, and Kafka's test storage as the ledger that its tests count calls by. Each
 * call goes to ours first; only what ours has done is done in the ledger, and a reader gets our
 * bytes. Kafka's harness finds the ledger because this is a wrapper around it.
 */
public final class LedgerStorageManager extends ClassLoaderAwareRemoteStorageManager {
    private static final String OURS = "io.strandline.broker.StrandlineStorageManager";

    private final RemoteStorageManager ours = Nodes.load(RemoteStorageManager.class, OURS);

    /** The broker calls it. */
    public LedgerStorageManager() {
        super(new LocalTieredStorage(), LedgerStorageManager.class.getClassLoader());
    }

    @Override
    public void configure(Map<String, ?> settings) {
        ours.configure(settings);
        super.configure(settings);
    }

    @Override
    public void close() throws IOException {
        ours.close();
        super.close();
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(
            RemoteLogSegmentMetadata segment, LogSegmentData data) throws RemoteStorageException {
        Optional<CustomMetadata> answer = ours.copyLogSegmentData(segment, data);
        super.copyLogSegmentData(segment, data);
        return answer;
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start)
            throws RemoteStorageException {
        InputStream answer = ours.fetchLogSegment(segment, start);
        drain(super.fetchLogSegment(segment, start));
        return answer;
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int end)
            throws RemoteStorageException {
        InputStream answer = ours.fetchLogSegment(segment, start, end);
        drain(super.fetchLogSegment(segment, start, end));
        return answer;
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type)
            throws RemoteStorageException {
        InputStream answer = ours.fetchIndex(segment, type);
        drain(super.fetchIndex(segment, type));
        return answer;
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment)
            throws RemoteStorageException {
        ours.deleteLogSegmentData(segment);
        super.deleteLogSegmentData(segment);
    }

    private static void drain(InputStream stream) {
        try (stream) {
            stream.transferTo(OutputStream.nullOutputStream());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
