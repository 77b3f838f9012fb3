package io.strandline.suites;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.PathMatcher;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;

/**
 * The nodes of one test, one beside each broker, as processes of the command that the system
 * property {@code strandline.nodes} names, separated by spaces. They end with this JVM.
 */
public final class Nodes implements AutoCloseable {
    static final String PLUGIN_JAR = System.getProperty("strandline.plugin");
    static final String NODE_URL = "strandline.node.url";
    static final String WITHOUT_BROKERS = "--without-brokers";
    private static final int STOP_DEADLINE_S = 30;
    private static final int EMPTY_DEADLINE_S = 60;
    private static final int POLL_MS = 200;

    private final Path home;
    private final Process process;
    private final Map<String, String> urls = new HashMap<>();

    /** Starts a node for each of {@code brokers}. */
    public Nodes(String clusterId, List<Properties> brokers, String... options) {
        try {
            home = Files.createTempDirectory("nodes");
            process = start(clusterId, brokers, options);
            BufferedReader said =
                    new BufferedReader(
                            new InputStreamReader(
                                    process.getInputStream(), StandardCharsets.UTF_8));
            for (int count = 0; count < brokers.size(); count++) {
                String line = said.readLine();
                if (line == null) {
                    throw new IllegalStateException("the nodes did not start: see the output");
                }
                String[] words = line.split(" ");
                urls.put(words[0], words[1]);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** One of our classes, as a broker loads it: from the plug-in's jar. */
    static <T> T load(Class<T> type, String name) {
        try {
            URL[] jar = {Path.of(PLUGIN_JAR).toUri().toURL()};
            ClassLoader loader = new URLClassLoader(jar, Nodes.class.getClassLoader());
            Class<?> found = Class.forName(name, true, loader);
            return type.cast(found.getDeclaredConstructor().newInstance());
        } catch (ReflectiveOperationException | IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private Process start(String clusterId, List<Properties> brokers, String[] options)
            throws IOException {
        List<String> command =
                new ArrayList<>(List.of(System.getProperty("strandline.nodes").split(" ")));
        command.addAll(List.of(options));
        command.add(home.toString());
        command.add(clusterId);
        for (Properties broker : brokers) {
            String logDirs = broker.getProperty("log.dirs", broker.getProperty("log.dir"));
            command.add(id(broker) + "=" + logDirs);
        }
        return new ProcessBuilder(command)
                .directory(new File(System.getProperty("strandline.repository")))
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
    }

    /**
     * Names our two managers in the settings of {@code brokers}; the storage manager behind the
     * {@code ledger}, where the test needs one.
     */
    public void use(List<Properties> brokers, boolean ledger) {
        for (Properties broker : brokers) {
            useMetadataManager(broker);
            useStorageManager(broker, ledger);
        }
    }

    /** The address of the node beside {@code broker}. */
    public String url(Properties broker) {
        return urls.get(id(broker));
    }

    private void useMetadataManager(Properties broker) {
        String manager = "remote.log.metadata.manager.";
        broker.put(manager + "class.name", "io.strandline.broker.StrandlineMetadataManager");
        broker.put(manager + "class.path", PLUGIN_JAR);
        broker.put(broker.get(manager + "impl.prefix") + NODE_URL, url(broker));
    }

    private void useStorageManager(Properties broker, boolean ledger) {
        String manager = "remote.log.storage.manager.";
        if (ledger) {
            broker.put(manager + "class.name", LedgerStorageManager.class.getName());
        } else {
            broker.put(manager + "class.name", "io.strandline.broker.StrandlineStorageManager");
            broker.put(manager + "class.path", PLUGIN_JAR);
        }
        broker.put(broker.get(manager + "impl.prefix") + NODE_URL, url(broker));
    }

    private static String id(Properties broker) {
        return String.valueOf(broker.getOrDefault("node.id", broker.get("broker.id")));
    }

    /** Waits until no object of the partition is in the nodes' store, or throws. */
    public void waitUntilEmpty(TopicPartition partition) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(EMPTY_DEADLINE_S);
        while (!objects(partition).isEmpty()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("the store still has " + objects(partition));
            }
            Thread.sleep(POLL_MS);
        }
    }

    /** Files of the store on its disk: an object is one, or MinIO's folder of that name has some. */
    private List<Path> objects(TopicPartition partition) {
        String folders = "glob:**/" + partition.topic() + "-*/" + partition.partition() + "/**";
        PathMatcher ofPartition = FileSystems.getDefault().getPathMatcher(folders);
        Path ours = Path.of(System.getProperty("strandline.store")).resolve(home.getFileName());
        try (Stream<Path> paths = Files.walk(ours)) {
            return paths.filter(ofPartition::matches).filter(Files::isRegularFile).toList();
        } catch (NoSuchFileException e) {
            throw new IllegalStateException("the nodes' store has nothing at all", e);
        } catch (UncheckedIOException e) {
            return List.of(ours); // something was deleted while it was looked at
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void close() {
        try {
            process.getOutputStream().close();
            if (!process.waitFor(STOP_DEADLINE_S, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
