package io.strandline.broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.strandline.broker.Phase.Side;
import io.strandline.broker.PhaseLease.Change;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

import java.util.Random;

/** The lease by a clock of its own, in seconds; each arrow of the move has a later offset. */
class PhaseLeaseTest {
    private static final long SECOND = 1_000_000_000L;

    /** Nanoseconds of a monotonic clock may wrap around: that must not matter. */
    private long now = Long.MAX_VALUE - 3 * SECOND;

    private long offset = PhaseLease.NONE;
    private final PhaseLease lease = new PhaseLease();

    private void pass(double seconds) {
        now += (long) (seconds * SECOND);
    }

    private boolean hear(Phase phase) {
        return lease.heard(phase, offset, now, now);
    }

    private boolean turn(Phase phase) {
        offset += 10;
        return hear(phase);
    }

    @Test
    void beforeTheFirstAnswerNothingGoesAnywhere() {
        assertNull(lease.lookUps());
        assertNull(lease.begin(now));
        assertFalse(lease.isOpen(now));
        assertEquals(PhaseLease.NONE, lease.seen());
        assertEquals(0, lease.outstanding(now));
        assertTrue(lease.why(now).contains("not told yet"));
    }

    @ParameterizedTest
    @CsvSource({
        "KAFKA, TOPIC, TOPIC",
        "SWITCHING, TOPIC, ",
        "QUORUM, NODE, NODE",
        "DONE, NODE, NODE",
        "BACK, NODE, "
    })
    void aBrokerThatStartsInAPhaseDoesWhatThePhaseSays(Phase phase, Side lookUps, Side changes) {
        assertTrue(turn(phase));
        assertEquals(phase.ordinal(), lease.seen());
        assertEquals(lookUps, lease.lookUps());
        assertEquals(changes != null, lease.isOpen(now));
        Change begun = lease.begin(now);
        assertEquals(changes, begun == null ? null : begun.side());
        assertEquals(changes == Side.TOPIC ? 1 : 0, lease.outstanding(now));
    }

    @ParameterizedTest
    @CsvSource({
        "KAFKA, SWITCHING",
        "SWITCHING, KAFKA",
        "SWITCHING, QUORUM",
        "QUORUM, BACK",
        "QUORUM, DONE",
        "BACK, QUORUM",
        "BACK, KAFKA"
    })
    void eachArrowIsFollowedAtOnce(Phase from, Phase to) {
        assertTrue(turn(from));
        pass(1);
        assertTrue(turn(to));
        assertEquals(to.side(), lease.lookUps());
        Change begun = lease.begin(now);
        assertEquals(to.isOpen(), begun != null);
        assertTrue(begun == null || begun.side() == to.side());
    }

    @ParameterizedTest
    @EnumSource(Phase.class)
    void withoutAFreshAnswerNothingChangesAndLookUpsGoWhereTheyWent(Phase phase) {
        turn(phase);
        pass(9.9);
        assertEquals(phase.isOpen(), lease.isOpen(now));
        pass(0.1);
        assertFalse(lease.isOpen(now));
        assertNull(lease.begin(now));
        assertEquals(phase.side(), lease.lookUps());
        assertTrue(lease.why(now).contains("not confirmed"));
        assertTrue(hear(phase));
        assertEquals(phase.isOpen(), lease.isOpen(now), "the node is back");
    }

    @Test
    void aLeaseCountsFromTheQuestionAndNotFromTheAnswer() {
        turn(Phase.KAFKA);
        long asked = now;
        pass(9);
        assertTrue(lease.heard(Phase.KAFKA, offset, asked, now));
        pass(1);
        assertFalse(lease.isOpen(now), "10 s after the question");
        pass(20);
        long paused = now;
        pass(30); // the process stood still between question and answer
        assertTrue(lease.heard(Phase.KAFKA, offset, paused, now));
        assertNull(lease.begin(now));
    }

    @Test
    void anAnswerAfterALongPauseIsFollowedButIsNoLease() {
        turn(Phase.KAFKA);
        long asked = now;
        pass(60);
        assertTrue(lease.heard(Phase.QUORUM, offset + 10, asked, now));
        assertEquals(Side.NODE, lease.lookUps());
        assertNull(lease.begin(now));
    }

    @Test
    void whatIsOutstandingIsSaidUntilItEnds() {
        turn(Phase.KAFKA);
        Change first = lease.begin(now);
        Change second = lease.begin(now);
        assertEquals(2, lease.outstanding(now));
        pass(1);
        turn(Phase.SWITCHING);
        assertEquals(Phase.SWITCHING.ordinal(), lease.seen());
        assertNull(lease.begin(now));
        assertEquals(2, lease.outstanding(now));
        assertTrue(lease.ended(first, false, now), "a switch waits for it, so it reads it");
        assertEquals(1, lease.outstanding(now));
        assertTrue(lease.ended(second, false, now));
        assertEquals(0, lease.outstanding(now));
    }

    @Test
    void aChangeThatFailedMayStillArriveForAWhile() {
        turn(Phase.KAFKA);
        assertFalse(lease.ended(lease.begin(now), true, now));
        pass(14.9);
        assertEquals(1, lease.outstanding(now));
        pass(0.1);
        assertEquals(0, lease.outstanding(now));
    }

    @Test
    void aChangeDuringWhichTheLeaseLapsedIsNotBelieved() {
        turn(Phase.KAFKA);
        Change paused = lease.begin(now);
        pass(10);
        assertFalse(lease.ended(paused, false, now), "the switch may have gone on without us");

        hear(Phase.KAFKA);
        Change begun = lease.begin(now);
        pass(11);
        hear(Phase.KAFKA);
        assertFalse(lease.ended(begun, false, now), "it lapsed in between");

        Change good = lease.begin(now);
        pass(9);
        hear(Phase.KAFKA);
        pass(9);
        assertTrue(lease.ended(good, false, now));
    }

    @Test
    void changesOfTheNodeAreNotOutstanding() {
        turn(Phase.QUORUM);
        assertEquals(Side.NODE, lease.begin(now).side());
        assertEquals(0, lease.outstanding(now));
    }

    @Test
    void aNodeThatFellBackIsNoLease() {
        turn(Phase.KAFKA);
        turn(Phase.SWITCHING);
        turn(Phase.QUORUM);
        pass(5);
        assertFalse(lease.heard(Phase.KAFKA, PhaseLease.NONE, now, now));
        assertFalse(lease.heard(Phase.SWITCHING, offset - 10, now, now));
        assertFalse(lease.heard(Phase.KAFKA, offset, now, now), "one offset has one phase");
        assertEquals(Side.NODE, lease.lookUps());
        assertNotNull(lease.begin(now));
        pass(5);
        assertNull(lease.begin(now), "none of them renewed it");
        assertTrue(hear(Phase.QUORUM));
        assertNotNull(lease.begin(now));
    }

    @Test
    void anAnswerToAnEarlierQuestionDoesNotShortenTheLease() {
        turn(Phase.KAFKA);
        assertFalse(lease.heard(Phase.KAFKA, offset, now - SECOND, now));
        pass(9.5);
        assertTrue(lease.isOpen(now));
    }

    @Test
    void theTopicIsWrittenOnlyInKafkaUnderAFreshLeaseWhateverHappens() {
        Random chance = new Random(34);
        Phase[] phases = Phase.values();
        long freshUntil = now;
        Phase told = null;
        for (int i = 0; i < 20_000; i++) {
            pass(chance.nextDouble() * 6);
            if (chance.nextInt(3) > 0) {
                long asked = now;
                pass(chance.nextInt(20) == 0 ? 12 : chance.nextDouble());
                Phase phase = told;
                if (told == null || chance.nextInt(4) == 0) {
                    phase = phases[chance.nextInt(phases.length)];
                    offset++;
                }
                assertTrue(lease.heard(phase, offset, asked, now));
                told = phase;
                freshUntil = asked + PhaseLease.LEASE_NANOS;
            }
            boolean mayWrite = told == Phase.KAFKA && now - freshUntil < 0;
            Change begun = lease.begin(now);
            assertEquals(mayWrite, begun != null && begun.side() == Side.TOPIC);
            if (mayWrite) {
                assertEquals(1, lease.outstanding(now));
                assertTrue(lease.ended(begun, false, now));
            }
        }
    }
}
