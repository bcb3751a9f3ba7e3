// SPDX-License-Identifier: Apache-2.0
// tally: a plugin in C++17. Each message's payload is a whole number; tally adds up the numbers of each key, and writes "KEY SUM" lines to a
// file when the worker ends. A payload that is no number is a dead letter. The sums are in memory only: a crash loses them.
//
//     "handler": {"type": "plugin", "path": "tally.so", "threads": 4, "config": {"file": "sums.txt"}}
//
// Two things differ from a plugin in C: a function makes the table, since only C has designated initializers, and no exception may leave
// the plugin.
#include <latchwork/handler.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

class Tally {
public:
    Tally(const latchwork_host *host, const char *file) : host_(host), file_(file) {}

    void add(std::string_view key, long long amount) {
        const std::lock_guard<std::mutex> guard(mutex_); // handlers of several keys run at the same time
        sums_[std::string(key)] += amount;
    }

    void write() const {
        std::ofstream out(file_);
        for (const auto &[key, sum] : sums_) out << key << ' ' << sum << '\n';
        if (!out.flush()) throw std::runtime_error("cannot write " + file_);
    }

    void complain(const char *what) const { host_->log(LATCHWORK_LOG_ERROR, "tally: %s", what); }

private:
    const latchwork_host *host_;
    std::string file_;
    std::mutex mutex_;
    std::map<std::string, long long> sums_;
};

bool number_of(const latchwork_message &m, long long &out) {
    const char *begin = static_cast<const char *>(m.payload), *end = begin + m.payload_len;
    const auto [stop, error] = std::from_chars(begin, end, out);
    return begin && error == std::errc() && stop == end;
}

int init(const latchwork_host *host, const char *, void **self, char *error, size_t error_size) {
    try {
        const char *file = host->setting(host, "/file");
        if (!file) throw std::runtime_error("config.file is missing: where to write the sums");
        *self = new Tally(host, file);
        return 0;
    } catch (const std::exception &e) {
        std::snprintf(error, error_size, "%s", e.what());
        return -1;
    }
}

int handle(void *self, const latchwork_message *m, char *reason, size_t reason_size) {
    try {
        long long amount = 0;
        if (!number_of(*m, amount)) {
            std::snprintf(reason, reason_size, "the payload is no whole number");
            return LATCHWORK_DEAD;
        }
        static_cast<Tally *>(self)->add({static_cast<const char *>(m->key), m->key_len}, amount);
        return LATCHWORK_DONE;
    } catch (const std::exception &e) { // usually memory ran out, so another attempt may succeed
        std::snprintf(reason, reason_size, "%s", e.what());
        return LATCHWORK_RETRY;
    }
}

void finish(void *self) {
    auto *tally = static_cast<Tally *>(self);
    try {
        tally->write();
    } catch (const std::exception &e) {
        tally->complain(e.what());
    }
    delete tally;
}

constexpr struct latchwork_handler table() {
    struct latchwork_handler t = latchwork_handler_init();
    t.init = init;
    t.handle = handle;
    t.close = finish;
    return t;
}

} // namespace

LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = table();
