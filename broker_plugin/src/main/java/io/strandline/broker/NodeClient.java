package io.strandline.broker;

import io.strandline.broker.NodeException.Kind;

import java.io.Closeable;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.EnumMap;
import java.util.Map;

/** Sends calls to the node and believes nothing that is not an answer of a node. */
final class NodeClient implements Closeable {
    static final String MEDIA_TYPE = "application/vnd.strandline.broker";
    static final int PROTOCOL = 1;
    private static final int BODY_BYTES_MAX = 8 * 1024 * 1024;

    private final NodeAddress address;
    private final TokenFile token;
    private final ConnectionPool pool;
    private final PluginStats stats;
    private final Trouble trouble;
    private final Map<Call.Group, Breaker> breakers = new EnumMap<>(Call.Group.class);

    /** Not the highest one: a node that was restored from a snapshot begins lower. */
    private volatile long applied = -1;

    NodeClient(PluginConfig config, PluginStats stats, Trouble trouble) {
        address = config.node();
        token = config.token();
        pool = new ConnectionPool(address);
        this.stats = stats;
        this.trouble = trouble;
        for (Call.Group group : Call.Group.values()) {
            breakers.put(group, new Breaker());
        }
    }

    /** Reads the fields of an answer. */
    interface Fields<T> {
        T read(ByteReader in) throws NodeException;
    }

    /** The metadata offset that the last answer was true at; -1 before the first. */
    long applied() {
        return applied;
    }

    /** The whole answer to a call, decoded. `made` is null for calls outside of a session. */
    <T> T ask(Call call, Stamp made, byte[] body, Deadline deadline, Fields<T> fields)
            throws NodeException {
        byte[] bytes;
        try (HttpAnswer answer = open(call, made, body, deadline)) {
            bytes = answer.readAll(BODY_BYTES_MAX, deadline);
        } catch (IOException | RuntimeException e) {
            throw failed(call, e, deadline);
        }
        try {
            ByteReader in = new ByteReader(bytes);
            T found = fields.read(in);
            in.end();
            applied = new ByteReader(bytes).int64();
            return found;
        } catch (NodeException | RuntimeException e) {
            throw failed(call, e, deadline);
        }
    }

    /** An answer whose head was read and which is the node's; the caller reads its body. */
    HttpAnswer open(Call call, Stamp made, byte[] body, Deadline deadline) throws NodeException {
        return open(call, made, body, 0, deadline);
    }

    /** As above, where so many bytes of the body follow once the answer has begun. */
    HttpAnswer open(Call call, Stamp made, byte[] body, long more, Deadline deadline)
            throws NodeException {
        Breaker breaker = breakers.get(call.group());
        if (breaker.refuses()) {
            stats.refusedByBreaker();
            NodeException notAsked =
                    new NodeException(
                            Kind.TIMEOUT, "", "Not asked: it did not answer a moment ago", null);
            // No timeout of its own, or the breaker would never close.
            notAsked.setCounted();
            throw notAsked;
        }
        stats.asked(call);
        HttpAnswer answer = null;
        boolean taken = false;
        try {
            answer = send(call, request(call, made, body, more), deadline);
            if (more > 0) {
                answer.endConnection();
            }
            check(answer, call);
            breaker.answered();
            taken = true;
            return answer;
        } catch (IOException | RuntimeException e) {
            throw failed(call, e, deadline);
        } finally {
            if (answer != null && !taken) {
                answer.close();
            }
        }
    }

    /** Count and tell a failure, in the form that all of the plug-in knows. */
    NodeException failed(Call call, Exception problem, Deadline deadline) {
        NodeException failure = NodeException.of(problem, deadline);
        if (failure.counted()) {
            return failure;
        }
        failure.setCounted();
        Breaker breaker = breakers.get(call.group());
        if (failure.kind() == Kind.TIMEOUT) {
            breaker.timedOut();
        } else if (failure.kind() != Kind.INTERRUPTED) {
            breaker.answered();
        }
        if (failure.kind() == Kind.UNAUTHENTICATED) {
            token.refused();
        }
        stats.failed(failure);
        trouble.failed(call, failure);
        return failure;
    }

    int idleConnections() {
        return pool.idleCount();
    }

    @Override
    public void close() {
        pool.close();
    }

    private HttpAnswer send(Call call, byte[] request, Deadline deadline) throws IOException {
        NodeConnection connection = pool.idle();
        if (connection != null && !call.repeatable() && connection.maybeStale()) {
            connection.close();
            connection = null;
        }
        if (connection != null) {
            try {
                return answerOn(connection, request, deadline);
            } catch (IOException e) {
                Kind kind = NodeException.of(e, deadline).kind();
                boolean wasClosed = kind == Kind.NO_CONNECTION && !connection.answerBegan();
                if (!wasClosed || !call.repeatable()) {
                    throw e;
                }
                // The node closed it while it was idle; so it did with the others.
                pool.clear();
            }
        }
        stats.connected();
        return answerOn(pool.open(deadline), request, deadline);
    }

    private HttpAnswer answerOn(NodeConnection connection, byte[] request, Deadline deadline)
            throws IOException {
        boolean read = false;
        try {
            connection.send(request, deadline);
            HttpAnswer answer = new HttpAnswer(connection, pool, deadline);
            read = true;
            return answer;
        } finally {
            if (!read) {
                connection.close();
            }
        }
    }

    private byte[] request(Call call, Stamp made, byte[] body, long more) {
        StringBuilder head = new StringBuilder(400);
        head.append("POST /v1/broker/").append(call.word()).append(" HTTP/1.1\r\n");
        head.append("Host: ").append(address.hostHeader()).append("\r\n");
        head.append("Content-Type: ").append(MEDIA_TYPE).append("\r\n");
        head.append("Accept: ").append(MEDIA_TYPE).append("\r\n");
        head.append("Content-Length: ").append(body.length + more).append("\r\n");
        head.append("Strandline-Broker-Protocol: ").append(PROTOCOL).append("\r\n");
        String secret = token.token();
        if (secret != null) {
            head.append("Authorization: Bearer ").append(secret).append("\r\n");
        }
        if (call == Call.LIST) {
            head.append("Strandline-List-Changes: 1\r\n");
        }
        if (call == Call.COPY) {
            head.append("Strandline-Copy-Files: 1\r\n");
        }
        if (made != null) {
            head.append("Strandline-Session: ").append(made.session()).append(';');
            head.append(made.seq()).append("\r\n");
            head.append("Strandline-Applied: ").append(made.applied()).append("\r\n");
        }
        byte[] first = head.append("\r\n").toString().getBytes(StandardCharsets.US_ASCII);
        return new ByteWriter().raw(first).raw(body).toBytes();
    }

    private void check(HttpAnswer answer, Call call) throws NodeException {
        String kind = answer.header("strandline-kind");
        if (kind != null) {
            String detail = answer.header("strandline-detail");
            throw NodeException.told(
                    kind, answer.header("strandline-reason"), detail == null ? "" : detail);
        }
        if (answer.status() != 200) {
            throw NodeException.wrongAnswer("status " + answer.status() + " and no word of a node");
        }
        String type = answer.header("content-type");
        if (type == null || !type.split(";", 2)[0].trim().equals(MEDIA_TYPE)) {
            throw NodeException.wrongAnswer("the media type " + type);
        }
        boolean wantsLength = call.group() == Call.Group.READ;
        if (wantsLength && answer.length() < 0) {
            throw NodeException.wrongAnswer("no length");
        }
    }
}
