package io.strandline.broker;

import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;

import java.io.InputStream;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** The methods that a broker calls, each with the call that it makes and its right result. */
enum Spi {
    IS_READY("ready", Column.QUESTION) {
        @Override
        Object call(Plugin plugin) {
            return plugin.metadata.isReady(Honest.TIP);
        }

        @Override
        Object right() {
            return true;
        }
    },
    LOOK_UP("lookup", Column.QUESTION) {
        @Override
        Object call(Plugin plugin) throws Exception {
            return plugin.metadata.remoteLogSegmentMetadata(Honest.TIP, 4, 150);
        }

        @Override
        Object right() throws Exception {
            return Optional.of(Honest.finished());
        }
    },
    NEXT_TXN("lookup", Column.QUESTION) {
        @Override
        Object call(Plugin plugin) throws Exception {
            return plugin.metadata.nextSegmentWithTxnIndex(Honest.TIP, 4, 150);
        }

        @Override
        Object right() throws Exception {
            return Optional.of(Honest.finished());
        }
    },
    HIGHEST("highest", Column.QUESTION) {
        @Override
        Object call(Plugin plugin) throws Exception {
            return plugin.metadata.highestOffsetForEpoch(Honest.TIP, 4);
        }

        @Override
        Object right() {
            return Optional.of(199L);
        }
    },
    LIST("list", Column.QUESTION) {
        @Override
        Object call(Plugin plugin) throws Exception {
            return all(plugin.metadata.listRemoteLogSegments(Honest.TIP));
        }

        @Override
        Object right() throws Exception {
            return List.of(Honest.finished(), Honest.secondRow().toKafka());
        }
    },
    LIST_EPOCH("list", Column.QUESTION) {
        @Override
        Object call(Plugin plugin) throws Exception {
            return all(plugin.metadata.listRemoteLogSegments(Honest.TIP, 4));
        }

        @Override
        Object right() throws Exception {
            return LIST.right();
        }
    },
    SIZE("list", Column.QUESTION) {
        @Override
        Object call(Plugin plugin) throws Exception {
            return plugin.metadata.remoteLogSize(Honest.TIP, 4);
        }

        @Override
        Object right() {
            return 3_000L;
        }
    },
    ADD("add", Column.CHANGE) {
        @Override
        Object call(Plugin plugin) throws Exception {
            return ended(plugin.metadata.addRemoteLogSegmentMetadata(Honest.started()));
        }
    },
    UPDATE("update", Column.CHANGE) {
        @Override
        Object call(Plugin plugin) throws Exception {
            return ended(plugin.metadata.updateRemoteLogSegmentMetadata(Honest.update()));
        }
    },
    DELETE_PARTITION("delete-partition", Column.CHANGE) {
        @Override
        Object call(Plugin plugin) throws Exception {
            return ended(
                    plugin.metadata.putRemotePartitionDeleteMetadata(Honest.deletePartition()));
        }
    },
    COPY("copy", Column.STORAGE) {
        @Override
        Object call(Plugin plugin) throws Exception {
            byte[] custom =
                    plugin.storage
                            .copyLogSegmentData(Honest.started(), Honest.files())
                            .orElseThrow()
                            .value();
            return hex(custom);
        }

        @Override
        Object right() {
            return hex(Honest.CUSTOM);
        }
    },
    FETCH("fetch", Column.STORAGE) {
        @Override
        Object call(Plugin plugin) throws Exception {
            try (InputStream in = plugin.storage.fetchLogSegment(Honest.finished(), 10)) {
                return hex(in.readAllBytes());
            }
        }

        @Override
        Object right() {
            return hex(Honest.bytes(10, Honest.SIZE));
        }
    },
    FETCH_RANGE("fetch", Column.STORAGE) {
        @Override
        Object call(Plugin plugin) throws Exception {
            try (InputStream in = plugin.storage.fetchLogSegment(Honest.finished(), 10, 20)) {
                return hex(in.readAllBytes());
            }
        }

        @Override
        Object right() {
            return hex(Honest.bytes(10, 21));
        }
    },
    INDEX("index", Column.STORAGE) {
        @Override
        Object call(Plugin plugin) throws Exception {
            try (InputStream in =
                    plugin.storage.fetchIndex(Honest.finished(), IndexType.TRANSACTION)) {
                return hex(in.readAllBytes());
            }
        }

        @Override
        Object right() {
            return hex(Honest.bytes(0, 300));
        }
    },
    DELETE("delete", Column.STORAGE) {
        @Override
        Object call(Plugin plugin) throws Exception {
            plugin.storage.deleteLogSegmentData(Honest.finished());
            return null;
        }
    };

    /** A column of the protocol page's last table. */
    enum Column {
        QUESTION,
        CHANGE,
        STORAGE
    }

    final String wire;
    final Column column;

    Spi(String wire, Column column) {
        this.wire = wire;
        this.column = column;
    }

    /** The result, or the exception that the broker sees; of a future, what it failed with. */
    abstract Object call(Plugin plugin) throws Exception;

    Object right() throws Exception {
        return null;
    }

    /** As `call`, but a machine that is too busy to answer in time is asked again. */
    Object patientCall(Plugin plugin) throws Exception {
        for (int i = 0; i < 20; i++) {
            try {
                Object found = call(plugin);
                if (!Boolean.FALSE.equals(found)) {
                    return found;
                }
            } catch (Exception e) {
                if (!isLate(e)) {
                    throw e;
                }
            }
            Thread.sleep(200);
        }
        return call(plugin);
    }

    private static boolean isLate(Exception problem) {
        return problem.getCause() instanceof NodeException failure
                && (failure.kind() == NodeException.Kind.TIMEOUT
                        || failure.reason().equals("ANNOUNCE"));
    }

    private static List<RemoteLogSegmentMetadata> all(Iterator<RemoteLogSegmentMetadata> found) {
        List<RemoteLogSegmentMetadata> all = new ArrayList<>();
        found.forEachRemaining(all::add);
        return all;
    }

    private static Object ended(java.util.concurrent.CompletableFuture<Void> future)
            throws Exception {
        try {
            return future.get(30, TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            throw (Exception) e.getCause();
        }
    }

    static String hex(byte[] bytes) {
        return java.util.HexFormat.of().formatHex(bytes);
    }
}
