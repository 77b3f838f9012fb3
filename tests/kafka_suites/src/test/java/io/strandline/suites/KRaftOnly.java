package io.strandline.suites;

import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Leaves out the clusters of ZooKeeper, with which 3.9's tests run as well. */
public final class KRaftOnly implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        return context.getDisplayName().contains("quorum=zk")
                ? ConditionEvaluationResult.disabled("ZooKeeper is not supported")
                : ConditionEvaluationResult.enabled("");
    }
}
