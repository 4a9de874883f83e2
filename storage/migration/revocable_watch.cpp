#include "storage/migration/revocable_watch.hpp"

#include <pthread.h>

#include "storage/base/log_line.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::storage {

RevocableWatch::~RevocableWatch() {
    {
        const Lock lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    migrator_.cancel();
    if (thread_.joinable()) thread_.join();
}

void RevocableWatch::start() {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), "revocable watch");
}

void RevocableWatch::run() {
    const Lock lock(mutex_);
    while (!stopping_) {
        {
            const Unlock unlock(mutex_);
            look();
        }
        changed_.wait_for(mutex_, interval_, [this]() REQUIRES(mutex_) { return stopping_; });
    }
}

void RevocableWatch::look() {
    const std::uint64_t excess = device_.use(0).revocable_excess;
    if (excess == 0) return shortage_log_.reset();
    const auto result = migrator_.give_up_revocable(excess);
    if (!result) return;
    shortage_log_.report(device_, *result, "the host could not take all revocable memory");
    if (result->released == 0) return;
    log_if_possible([&] {
        LogLine(spdlog::level::info)
            .with("device", device_.info().id)
            .with("bytes", result->released)
            .log("{}: {} MiB are not revocable any more, because the host is short of memory",
                 device_.info().id, result->released >> 20);
    });
}

}  // namespace gpunbd::storage
