package io.strandline.broker;

/** The version of this jar, as the node and the log name it. */
final class PluginVersion {
    static final String TEXT = found();

    private PluginVersion() {}

    private static String found() {
        String version = PluginVersion.class.getPackage().getImplementationVersion();
        return version == null ? "unpacked" : version;
    }
}
