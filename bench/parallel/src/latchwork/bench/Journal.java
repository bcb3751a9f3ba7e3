/* SPDX-License-Identifier: Apache-2.0 */
package latchwork.bench;

import java.io.Closeable;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Writes one line per run of the handler, "START_US END_US KEY PARTITION OFFSET", to a file named
 * after the pid. Each handler thread fills a buffer of its own, so that the journal costs less than
 * a microsecond per run. close() writes the buffers to the file after the last run. */
final class Journal implements Closeable {
    private static final int BUFFER_CHARS = 64 * 1024;
    private static final int LINE_CHARS = 1024;

    private final FileOutputStream file;
    private final List<StringBuilder> buffers = new ArrayList<>();
    private final ThreadLocal<StringBuilder> mine = ThreadLocal.withInitial(this::open);

    Journal(Path folder) throws IOException {
        file = new FileOutputStream(folder.resolve(Long.toString(ProcessHandle.current().pid())).toFile());
    }

    private synchronized StringBuilder open() {
        StringBuilder b = new StringBuilder(BUFFER_CHARS + LINE_CHARS);
        buffers.add(b);
        return b;
    }

    void add(long startUs, long endUs, String key, int partition, long offset) {
        StringBuilder b = mine.get();
        b.append(startUs).append(' ').append(endUs).append(' ').append(key).append(' ');
        b.append(partition).append(' ').append(offset).append('\n');
        if (b.length() >= BUFFER_CHARS) write(b);
    }

    private synchronized void write(StringBuilder b) {
        try {
            file.write(b.toString().getBytes(StandardCharsets.UTF_8));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        b.setLength(0);
    }

    /** Writes the buffers to the file. Must not be called before the handler threads have ended. */
    @Override
    public synchronized void close() throws IOException {
        for (StringBuilder b : buffers) write(b);
        file.close();
    }
}
