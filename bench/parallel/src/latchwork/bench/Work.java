/* SPDX-License-Identifier: Apache-2.0 */
package latchwork.bench;

import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/** The handler. It waits for a fixed time, and records when runs began and ended. It is called by
 * many threads. */
final class Work {
    private final long workNs;
    private final Journal journal; // null if no journal is written
    private final AtomicLong handled = new AtomicLong();
    private final AtomicLong firstUs = new AtomicLong(Long.MAX_VALUE);
    private final AtomicLong lastUs = new AtomicLong();

    Work(long workUs, Journal journal) {
        this.workNs = workUs * 1000;
        this.journal = journal;
    }

    /** Returns the time of CLOCK_MONOTONIC, which the other contenders use too. */
    static long nowUs() {
        return System.nanoTime() / 1000;
    }

    void run(String key, int partition, long offset) {
        long start = nowUs();
        if (firstUs.get() > start) firstUs.accumulateAndGet(start, Math::min);
        if (workNs > 0) rest(workNs);
        long end = nowUs();
        lastUs.accumulateAndGet(end, Math::max);
        if (journal != null) journal.add(start, end, key, partition, offset);
        handled.incrementAndGet();
    }

    /** Sleeps for at least the given time. A loop is needed because parkNanos() may return
     * early. */
    private static void rest(long ns) {
        long until = System.nanoTime() + ns;
        for (long left = ns; left > 0; left = until - System.nanoTime()) LockSupport.parkNanos(left);
    }

    long handled() {
        return handled.get();
    }

    String json() {
        long n = handled.get();
        return "{\"messages\":" + n + ",\"first_us\":" + (n > 0 ? firstUs.get() : 0) + ",\"last_us\":" + lastUs.get() + "}";
    }
}
