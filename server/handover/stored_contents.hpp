// The parts that the supervisor has of one volume, or of several that share pages.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "server/handover/contents_name.hpp"
#include "server/supervisor/descriptor_store.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

// A removal can fail, without memory for the message or with a busy supervisor. It then stays
// pending, and each later call retries it. Until it succeeds, nothing else is stored under that
// name, so that a later server cannot mistake the old slab for a new one.
class StoredContents {
 public:
    // The store outlives this object. `patience`: the time to wait for a busy supervisor.
    StoredContents(DescriptorStore& store, std::string id, std::chrono::milliseconds patience)
        : store_(store), id_(std::move(id)), patience_(patience) {}

    const std::string& id() const { return id_; }
    std::string name_of(const ContentsPart& part) const { return contents_name(id_, part); }

    // While no volume is kept, nothing is stored. `clone`: as in ContentsPart.
    void add_volume(const std::string& clone);
    // Removes its table, and with the last volume all parts. Processes that have opened a part keep
    // their descriptors.
    void remove_volume(const std::string& clone) noexcept;
    // Adds a part that an earlier server has stored.
    void add_stored(const ContentsPart& part);
    // Blocks until the supervisor has the part. Returns false if it may not have it.
    bool keep(const ContentsPart& part, const OwnedFd& descriptor) noexcept;
    void forget(const ContentsPart& part) noexcept;
    // Retries pending removals. Returns false if some are still pending.
    bool finish_removals() noexcept;

 private:
    // kept: the supervisor stores it, or may store it. removing: its removal is pending.
    enum class State { kept, removing };

    bool remove_pending() noexcept REQUIRES(mutex_);
    void report_pending(std::string_view why) noexcept REQUIRES(mutex_);

    DescriptorStore& store_;
    const std::string id_;
    const std::chrono::milliseconds patience_;
    std::atomic<bool> removals_pending_{false};
    Mutex mutex_;  // held as long as the supervisor is busy
    std::set<std::string> volumes_ GUARDED_BY(mutex_);
    std::map<ContentsPart, State> parts_ GUARDED_BY(mutex_);
    bool pending_reported_ GUARDED_BY(mutex_) = false;
};

}  // namespace gpunbd::server
