/* SPDX-License-Identifier: Apache-2.0 */
package latchwork.bench;

import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import io.confluent.parallelconsumer.internal.DrainingCloseable.DrainingMode;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import sun.misc.Signal;

/** Confluent Parallel Consumer in KEY order as a contender of the benchmark. The file README in
 * bench/parallel describes it. */
public final class Parallel {
    // Messages buffered per thread. The library's own maximum is used from the start.
    private static final int LOAD_FACTOR = 100;
    private static final int TICK_MS = 20;
    private static final int ASK_EVERY_TICKS = 10;
    private static final int STALL_S = 120;
    private static final int CLOSE_S = 10;

    private final Options o;
    private final Journal journal;
    private final Work work;
    private final KeyLock lock;
    private final ParallelStreamProcessor<String, byte[]> processor;
    private final CountDownLatch told = new CountDownLatch(1);
    private final AtomicLong failures = new AtomicLong();

    private Parallel(Options o) throws Exception {
        this.o = o;
        Signal.handle(new Signal("TERM"), s -> told.countDown());
        Signal.handle(new Signal("INT"), s -> told.countDown());
        journal = o.journal == null ? null : new Journal(o.journal);
        work = new Work(o.workUs, journal);
        lock = KeyLock.open(o);
        processor = ParallelStreamProcessor.createEosStreamProcessor(
                ParallelConsumerOptions.<String, byte[]>builder()
                        .consumer(consumer())
                        .ordering(ProcessingOrder.KEY)
                        .maxConcurrency(o.threads)
                        .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
                        .commitInterval(Duration.ofMillis(o.commitMs))
                        .initialLoadFactor(LOAD_FACTOR)
                        .build());
    }

    private KafkaConsumer<String, byte[]> consumer() {
        Properties p = new Properties();
        p.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, o.brokers);
        p.put(ConsumerConfig.GROUP_ID_CONFIG, o.group);
        p.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        // The library makes its own commits, and refuses a consumer with auto-commit.
        p.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        return new KafkaConsumer<>(p, new StringDeserializer(), new ByteArrayDeserializer());
    }

    private void handle(ConsumerRecord<String, byte[]> r) {
        try {
            lock.around(r.key(), () -> work.run(r.key(), r.partition(), r.offset()));
        } catch (RuntimeException e) {
            if (failures.getAndIncrement() == 0) System.err.println("parallel: a message will be tried again: " + e);
            throw e;
        }
    }

    /** Runs until the end that bench/parallel/README describes. */
    private void await() throws Exception {
        long last = -1;
        long moved = System.nanoTime();
        try (Committed committed = new Committed(o)) {
            for (int tick = 0; !told.await(TICK_MS, TimeUnit.MILLISECONDS); tick++) {
                long now = work.handled();
                if (o.messages > 0 && now >= o.messages) return;
                if (processor.isClosedOrFailed()) throw new IllegalStateException("Parallel Consumer stopped by itself");
                if (tick % ASK_EVERY_TICKS != 0) continue;
                long sum = o.messages > 0 ? committed.sum() : 0;
                if (o.messages > 0 && sum >= o.messages) return;
                if (now + sum != last) moved = System.nanoTime();
                last = now + sum;
                if (o.messages > 0 && System.nanoTime() - moved > STALL_S * 1_000_000_000L)
                    throw new IllegalStateException("nothing moves: " + sum + " of " + o.messages + " committed, " + now + " handled here");
            }
        }
    }

    /** Waits for the running handlers, commits, and leaves the group. */
    private void close() throws Exception {
        processor.close(Duration.ofSeconds(CLOSE_S), DrainingMode.DONT_DRAIN);
        lock.close();
        if (journal != null) journal.close();
    }

    private int run() throws Exception {
        processor.subscribe(List.of(o.topic));
        processor.poll(context -> handle(context.getSingleConsumerRecord()));
        await();
        close();
        if (failures.get() > 0) System.err.println("parallel: " + failures.get() + " runs failed and were repeated");
        System.out.println(work.json());
        return 0;
    }

    public static void main(String[] args) {
        int status = 1;
        Options options = Options.parse(args);
        try {
            status = new Parallel(options).run();
        } catch (Exception e) {
            System.err.println("parallel: " + e);
        }
        System.out.flush();
        Runtime.getRuntime().halt(status); // threads of libraries must not keep the process alive
    }
}
