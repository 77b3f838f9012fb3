package io.strandline.broker;

import org.apache.kafka.common.config.ConfigException;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;

/** Where the node listens; `tls` is null for plain HTTP. */
record NodeAddress(String host, int port, SSLSocketFactory tls) {

    /** The address of an http or https URL of a host and a port; anything more is a mistake. */
    static NodeAddress of(String url, Path trustedCertificates) {
        URI uri = parsed(url);
        boolean secure = "https".equals(uri.getScheme());
        boolean plain = "http".equals(uri.getScheme());
        if (!(secure || plain) || uri.getHost() == null || uri.getPort() < 1 || saysMore(uri)) {
            throw new ConfigException(
                    PluginConfig.NODE_URL,
                    url,
                    "It must be like http://127.0.0.1:9480 or https://node:9480, with a port and"
                            + " nothing behind it");
        }
        if (plain && trustedCertificates != null) {
            throw new ConfigException(
                    PluginConfig.TRUSTSTORE_FILE, trustedCertificates, "It is for https URLs only");
        }
        String host = uri.getHost().replace("[", "").replace("]", "");
        return new NodeAddress(host, uri.getPort(), secure ? factory(trustedCertificates) : null);
    }

    /** The value of the Host header. */
    String hostHeader() {
        return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
    }

    @Override
    public String toString() {
        return (tls == null ? "http://" : "https://") + hostHeader();
    }

    private static boolean saysMore(URI uri) {
        String path = uri.getRawPath();
        return uri.getRawUserInfo() != null
                || uri.getRawQuery() != null
                || uri.getRawFragment() != null
                || !(path == null || path.isEmpty() || path.equals("/"));
    }

    private static URI parsed(String url) {
        try {
            return new URI(url.trim());
        } catch (URISyntaxException e) {
            throw new ConfigException(PluginConfig.NODE_URL, url, e.getMessage());
        }
    }

    private static SSLSocketFactory factory(Path trustedCertificates) {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            TrustManagerFactory trust =
                    TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(trustedCertificates == null ? null : keyStore(trustedCertificates));
            context.init(null, trust.getTrustManagers(), null);
            return context.getSocketFactory();
        } catch (IOException | GeneralSecurityException e) {
            throw new ConfigException(
                    PluginConfig.TRUSTSTORE_FILE, trustedCertificates, e.toString());
        }
    }

    private static KeyStore keyStore(Path pem) throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream in = Files.newInputStream(pem)) {
            for (Certificate each :
                    CertificateFactory.getInstance("X.509").generateCertificates(in)) {
                store.setCertificateEntry("trusted-" + store.size(), each);
            }
        }
        if (store.size() == 0) {
            throw new GeneralSecurityException("The file holds no certificate in PEM form");
        }
        return store;
    }
}
