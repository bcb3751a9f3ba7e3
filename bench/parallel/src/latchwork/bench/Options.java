/* SPDX-License-Identifier: Apache-2.0 */
package latchwork.bench;

import java.nio.file.Files;
import java.nio.file.Path;

/** The command line. Every error ends the process with status 2 and a line that describes the
 * error. */
final class Options {
    static final String USAGE = "usage: run.sh --brokers HOST:PORT --topic T --group G --messages N --work-us U --threads N\n"
            + "              [--lock none|redisson] [--redis-port N] [--journal DIR] [--commit-ms N]";

    String brokers;
    String topic;
    String group;
    String lock = "none";
    Path journal;
    long messages = -1;
    long workUs = -1;
    int threads;
    int redisPort;
    int commitMs = 200;

    static Options parse(String[] args) {
        Options o = new Options();
        for (int i = 0; i < args.length; i += 2) {
            if (i + 1 == args.length) fail(args[i] + " has no value");
            o.set(args[i], args[i + 1]);
        }
        o.check();
        return o;
    }

    private void set(String name, String value) {
        switch (name) {
            case "--brokers" -> brokers = value;
            case "--topic" -> topic = value;
            case "--group" -> group = value;
            case "--lock" -> lock = value;
            case "--journal" -> journal = Path.of(value);
            case "--messages" -> messages = number(name, value, 0, Long.MAX_VALUE);
            case "--work-us" -> workUs = number(name, value, 0, 60_000_000);
            case "--threads" -> threads = (int) number(name, value, 1, 1024);
            case "--redis-port" -> redisPort = (int) number(name, value, 1, 65535);
            case "--commit-ms" -> commitMs = (int) number(name, value, 10, 60_000);
            default -> fail("no such option: " + name);
        }
    }

    private void check() {
        if (brokers == null || topic == null || group == null || messages < 0 || workUs < 0 || threads == 0) fail("an option is missing");
        if (!lock.equals("none") && !lock.equals("redisson")) fail("--lock is none or redisson, not " + lock);
        if (lock.equals("redisson") && redisPort == 0) fail("--lock redisson needs --redis-port");
        if (journal != null && !Files.isDirectory(journal)) fail("--journal: no such folder: " + journal);
    }

    private static long number(String name, String text, long min, long max) {
        long n = -1;
        try {
            n = Long.parseLong(text);
        } catch (NumberFormatException e) {
            fail(name + ": not a number: " + text);
        }
        if (n < min || n > max) fail(name + ": not from " + min + " to " + max + ": " + text);
        return n;
    }

    private static void fail(String why) {
        System.err.println("parallel: " + why + "\n" + USAGE);
        System.exit(2);
    }
}
