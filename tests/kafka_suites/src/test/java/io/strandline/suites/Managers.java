package io.strandline.suites;

import static net.bytebuddy.matcher.ElementMatchers.named;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.function.Supplier;
import kafka.server.KafkaConfig;
import kafka.server.QuorumTestHarness;
import net.bytebuddy.agent.ByteBuddyAgent;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.agent.builder.AgentBuilder.RedefinitionStrategy;
import net.bytebuddy.asm.Advice;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.server.log.remote.metadata.storage.RemotePartitionMetadataStore;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;
import org.apache.kafka.tiered.storage.TieredStorageTestHarness;
import org.apache.kafka.tiered.storage.integration.BaseReassignReplicaTest;
import org.junit.platform.launcher.LauncherSession;
import org.junit.platform.launcher.LauncherSessionListener;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Puts our managers into Kafka's test classes, which stay as they are: JUnit opens a session, and
 * from then on a test's brokers get nodes beside them when they are configured.
 */
public final class Managers implements LauncherSessionListener {
    // Not the classes of the tests: to transform a loaded class takes the names of parameters from
    // its methods (JDK-8240908), and tests are told by them which group protocol is meant.
    private static final String HARNESS = "kafka.api.IntegrationTestHarness";
    private static final String EMPTY =
            "org.apache.kafka.tiered.storage.actions.ExpectEmptyRemoteStorageAction";
    private static final String BUILDER =
            "org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataManagerTestUtils$Builder";
    private static final String METADATA_TOPIC = "__remote_log_metadata";

    private static Nodes nodes;

    @Override
    public void launcherSessionOpened(LauncherSession session) {
        if (Nodes.PLUGIN_JAR.isEmpty()) {
            return; // Kafka's own managers, for comparison
        }
        new AgentBuilder.Default()
                .with(RedefinitionStrategy.RETRANSFORMATION)
                .disableClassFormatChanges()
                .type(named(HARNESS))
                .transform(
                        (type, description, loader, module, domain) ->
                                type.visit(
                                                Advice.to(Configured.class)
                                                        .on(named("generateConfigs")))
                                        .visit(Advice.to(SetUp.class).on(named("setUp")))
                                        .visit(Advice.to(TornDown.class).on(named("tearDown"))))
                .type(named(EMPTY))
                .transform(
                        (type, description, loader, module, domain) ->
                                type.visit(Advice.to(Emptied.class).on(named("doExecute"))))
                .type(named(BUILDER))
                .transform(
                        (type, description, loader, module, domain) ->
                                type.visit(Advice.to(Built.class).on(named("build"))))
                .installOn(ByteBuddyAgent.install());
    }

    /** The brokers of {@code test} are about to be made: their settings with our managers. */
    public static Seq<KafkaConfig> configured(Object test, Seq<KafkaConfig> brokers) {
        String clusterId = ((QuorumTestHarness) test).controllerServer().clusterId();
        boolean ledger = test instanceof TieredStorageTestHarness;
        List<Properties> settings = new ArrayList<>();
        for (KafkaConfig broker : CollectionConverters.asJava(brokers)) {
            Properties properties = new Properties();
            properties.putAll(broker.originals());
            settings.add(properties);
        }
        nodes = new Nodes(clusterId, settings);
        nodes.use(settings, ledger);
        List<KafkaConfig> changed = settings.stream().map(KafkaConfig::fromProps).toList();
        return CollectionConverters.asScala(changed).toSeq();
    }

    /** The brokers run. The tests of reassignments describe the topic of Kafka's own manager. */
    public static void setUp(Object test) throws ExecutionException, InterruptedException {
        if (test instanceof BaseReassignReplicaTest harness) {
            String servers = harness.bootstrapServers(harness.listenerName());
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
                int partitions = harness.numRemoteLogMetadataPartitions();
                NewTopic topic =
                        new NewTopic(METADATA_TOPIC, partitions, (short) harness.brokerCount());
                admin.createTopics(List.of(topic)).all().get();
            }
        }
    }

    /** The brokers are stopped. */
    public static void tornDown() {
        if (nodes != null) {
            nodes.close();
            nodes = null;
        }
    }

    /** Kafka's test has found nothing of the partition in the ledger. */
    public static void emptied(TopicPartition partition) throws InterruptedException {
        nodes.waitUntilEmpty(partition);
    }

    /** A test of the metadata manager alone makes one, with a store that it watches. */
    public static TopicBasedRemoteLogMetadataManager built(
            Supplier<RemotePartitionMetadataStore> store) throws IOException {
        return new LedgerMetadataManager(store.get());
    }

    /** Copied to the end of the method of that name. */
    public static final class Configured {
        @Advice.OnMethodExit
        static void exit(
                @Advice.This Object test, @Advice.Return(readOnly = false) Seq<KafkaConfig> brokers) {
            brokers = configured(test, brokers);
        }
    }

    /** Copied to the end of the method of that name. */
    public static final class SetUp {
        @Advice.OnMethodExit
        static void exit(@Advice.This Object test)
                throws ExecutionException, InterruptedException {
            Managers.setUp(test);
        }
    }

    /** Copied to the end of the method of that name, also where it throws. */
    public static final class TornDown {
        @Advice.OnMethodExit(onThrowable = Throwable.class)
        static void exit() {
            tornDown();
        }
    }

    /** Copied to the end of the method of that name. */
    public static final class Emptied {
        @Advice.OnMethodExit
        static void exit(@Advice.FieldValue("topicPartition") TopicPartition partition)
                throws InterruptedException {
            emptied(partition);
        }
    }

    /** Copied around the method of that name, which is skipped. */
    public static final class Built {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static TopicBasedRemoteLogMetadataManager enter(
                @Advice.FieldValue("remotePartitionMetadataStore")
                        Supplier<RemotePartitionMetadataStore> store)
                throws IOException {
            return built(store);
        }

        @Advice.OnMethodExit
        static void exit(
                @Advice.Enter TopicBasedRemoteLogMetadataManager made,
                @Advice.Return(readOnly = false) TopicBasedRemoteLogMetadataManager answer) {
            answer = made;
        }
    }
}
