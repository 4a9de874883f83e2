#include "server/handover/stored_contents.hpp"

#include <spdlog/spdlog.h>

#include <new>
#include <utility>

#include "storage/base/log_line.hpp"

namespace gpunbd::server {

void StoredContents::add_volume(const std::string& clone) {
    const Lock lock(mutex_);
    volumes_.insert(clone);
}

void StoredContents::remove_volume(const std::string& clone) noexcept {
    const Lock lock(mutex_);
    volumes_.erase(clone);
    for (auto& [part, state] : parts_) {
        const bool is_its_table = part.kind == ContentsPart::Kind::table && part.clone == clone;
        if (volumes_.empty() || is_its_table) state = State::removing;
    }
    remove_pending();
}

void StoredContents::add_stored(const ContentsPart& part) {
    const Lock lock(mutex_);
    parts_.emplace(part, State::kept);
}

bool StoredContents::keep(const ContentsPart& part, const OwnedFd& descriptor) noexcept {
    try {
        const Lock lock(mutex_);
        if (volumes_.empty()) return true;  // a volume in use that is not kept any more
        if (const auto same = parts_.find(part); same != parts_.end()) {
            same->second = State::removing;
        }
        if (!remove_pending() && parts_.contains(part)) return false;
        parts_.emplace(part, State::kept);
        const std::string name = name_of(part);
        auto wrong = store_.store(name, descriptor.get());
        // Without this confirmation the slab may not be kept, and data written to it could be lost.
        if (!wrong) wrong = store_.barrier(patience_);
        if (!wrong) return true;
        spdlog::error("contents cannot be kept beyond the end of this server: {}", *wrong);
    } catch (const std::bad_alloc&) {
        storage::log_if_possible([] {
            spdlog::error("contents cannot be kept beyond the end of this server: no memory");
        });
    }
    return false;
}

void StoredContents::forget(const ContentsPart& part) noexcept {
    const Lock lock(mutex_);
    const auto found = parts_.find(part);
    if (found != parts_.end()) found->second = State::removing;
    remove_pending();
}

bool StoredContents::finish_removals() noexcept {
    if (!removals_pending_) return true;
    const Lock lock(mutex_);
    return remove_pending();
}

// Stops at the first failure, because the later removals would fail and wait as well.
bool StoredContents::remove_pending() noexcept {
    removals_pending_ = true;
    try {
        for (auto at = parts_.begin(); at != parts_.end();) {
            if (at->second == State::kept) {
                ++at;
                continue;
            }
            if (const auto wrong = store_.remove(name_of(at->first))) {
                report_pending(*wrong);
                return false;
            }
            at = parts_.erase(at);
        }
    } catch (const std::bad_alloc&) {
        report_pending("no memory");
        return false;
    }
    removals_pending_ = false;
    pending_reported_ = false;
    return true;
}

void StoredContents::report_pending(std::string_view why) noexcept {
    if (std::exchange(pending_reported_, true)) return;
    storage::log_if_possible([&] {
        spdlog::warn(
            "the supervisor cannot be notified to free kept memory; this will be retried: {}", why);
    });
}

}  // namespace gpunbd::server
