package io.strandline.broker;

import java.util.Set;

/** Both managers, configured for a node, with a partition that the broker leads. */
final class Plugin implements AutoCloseable {
    final StrandlineMetadataManager metadata = new StrandlineMetadataManager();
    final StrandlineStorageManager storage = new StrandlineStorageManager();

    Plugin(String url) {
        metadata.configure(Honest.metadataSettings(url));
        storage.configure(Honest.storageSettings(url));
        metadata.onPartitionLeadershipChanges(Set.of(Honest.TIP), Set.of(Honest.OTHER_TIP));
    }

    /** Wait until the node was told of the partitions, however slow the machine is. */
    Plugin announced() throws InterruptedException {
        for (int i = 0; i < 1_000 && !metadata.isReady(Honest.TIP); i++) {
            Thread.sleep(10);
        }
        return this;
    }

    @Override
    public void close() {
        metadata.close();
        storage.close();
    }
}
