package io.strandline.broker;

import org.apache.kafka.common.config.ConfigException;

import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/**
 * The settings of either manager, their prefix taken off by the broker. Whatever is wrong with them
 * ends the broker's start: nothing here asks the node.
 */
record PluginConfig(
        NodeAddress node, TokenFile token, int brokerId, String clusterId, String bootstrap) {
    static final String NODE_URL = "strandline.node.url";
    static final String TOKEN_FILE = "strandline.token.file";
    static final String TRUSTSTORE_FILE = "strandline.truststore.file";
    private static final Set<String> OURS = Set.of(NODE_URL, TOKEN_FILE, TRUSTSTORE_FILE);
    private static final String BOOTSTRAP = "remote.log.metadata.common.client.bootstrap.servers";

    /** Settings of the storage manager, which is not told the cluster's id. */
    static PluginConfig ofStorage(Map<String, ?> settings) {
        return of(settings, "");
    }

    static PluginConfig ofMetadata(Map<String, ?> settings) {
        return of(settings, text(settings, "cluster.id"));
    }

    private static PluginConfig of(Map<String, ?> settings, String clusterId) {
        Set<String> unknown = new TreeSet<>();
        for (String name : settings.keySet()) {
            if (name.startsWith("strandline.") && !OURS.contains(name)) {
                unknown.add(name);
            }
        }
        if (!unknown.isEmpty()) {
            throw new ConfigException(
                    "There is no setting " + unknown + "; there are " + new TreeSet<>(OURS));
        }
        Path truststore = path(settings, TRUSTSTORE_FILE);
        NodeAddress node = NodeAddress.of(text(settings, NODE_URL), truststore);
        TokenFile token = TokenFile.of(path(settings, TOKEN_FILE));
        Object bootstrap = settings.get(BOOTSTRAP);
        return new PluginConfig(
                node,
                token,
                brokerId(settings),
                clusterId,
                bootstrap == null ? "" : bootstrap.toString());
    }

    private static int brokerId(Map<String, ?> settings) {
        String text = text(settings, "broker.id");
        try {
            return Integer.parseInt(text);
        } catch (NumberFormatException e) {
            throw new ConfigException("broker.id", text, "It must be a number");
        }
    }

    private static Path path(Map<String, ?> settings, String name) {
        return settings.get(name) == null ? null : Path.of(text(settings, name));
    }

    private static String text(Map<String, ?> settings, String name) {
        Object value = settings.get(name);
        if (value == null || value.toString().isBlank()) {
            throw new ConfigException(name, value, "It must be set");
        }
        return value.toString().trim();
    }
}
