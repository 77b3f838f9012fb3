package io.strandline.broker;

import org.apache.kafka.common.Uuid;

/**
 * When the broker made a call: how many changes of its partitions it had told the plug-in, and the
 * metadata offset of the last answer that the plug-in had heard. It stays that of the call, however
 * late it is sent: the broker may lead at another epoch by then, with another log.
 */
record Stamp(Uuid session, long seq, long applied) {}
