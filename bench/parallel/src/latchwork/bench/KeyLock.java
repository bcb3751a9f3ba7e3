/* SPDX-License-Identifier: Apache-2.0 */
package latchwork.bench;

import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The lock around a handler: none, or a Redisson lock with the key's name. */
interface KeyLock extends AutoCloseable {
    void around(String key, Runnable handler);

    @Override
    void close();

    static KeyLock open(Options o) {
        return o.lock.equals("redisson") ? new RedissonLock(o.redisPort, o.threads) : new NoLock();
    }
}

final class NoLock implements KeyLock {
    @Override
    public void around(String key, Runnable handler) {
        handler.run();
    }

    @Override
    public void close() {}
}

final class RedissonLock implements KeyLock {
    private final RedissonClient redis;

    RedissonLock(int port, int threads) {
        Config config = new Config();
        config.setUseScriptCache(true); // send EVALSHA, not the script's text each time
        config.setCheckLockSyncedSlaves(false); // A lone server has no replicas to check.
        // Each thread gets a connection, which is opened before the first message. There are as
        // many connections for the channels to which waiting threads subscribe, because every
        // thread may wait for another key.
        config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + port)
                .setConnectionPoolSize(threads + 1)
                .setConnectionMinimumIdleSize(threads + 1)
                .setSubscriptionConnectionPoolSize(threads + 1)
                .setSubscriptionConnectionMinimumIdleSize(1);
        redis = Redisson.create(config);
    }

    @Override
    public void around(String key, Runnable handler) {
        RLock lock = redis.getLock("bench:" + key);
        // The thread waits without a time limit. Redisson's watchdog renews the lock, because the
        // call specifies no lease.
        lock.lock();
        try {
            handler.run();
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void close() {
        redis.shutdown();
    }
}
