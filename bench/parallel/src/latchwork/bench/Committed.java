/* SPDX-License-Identifier: Apache-2.0 */
package latchwork.bench;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Reads how much of the topic the whole group has committed, so that several processes learn when
 * all messages are done. Each call costs one small request. */
final class Committed implements AutoCloseable {
    private static final int ASK_S = 20;

    private final Admin admin;
    private final String group;
    private final String topic;

    Committed(Options o) {
        admin = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, o.brokers));
        group = o.group;
        topic = o.topic;
    }

    /** Returns the sum of the committed offsets of all partitions. The partitions begin at 0, so
     * the sum is N when all N messages are committed. */
    long sum() throws InterruptedException {
        Map<TopicPartition, OffsetAndMetadata> all;
        try {
            all = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(ASK_S, TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException e) {
            throw new IllegalStateException("Kafka does not say what group " + group + " committed; is it up? " + e);
        }
        long sum = 0;
        for (Map.Entry<TopicPartition, OffsetAndMetadata> e : all.entrySet())
            if (e.getKey().topic().equals(topic) && e.getValue() != null) sum += e.getValue().offset();
        return sum;
    }

    @Override
    public void close() {
        admin.close(Duration.ofSeconds(2));
    }
}
