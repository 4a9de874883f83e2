#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "server/supervisor/descriptor_store.hpp"
#include "storage/base/mutex.hpp"
#include "storage/pages/page_table.hpp"
#include "storage/pages/pool_config.hpp"

namespace gpunbd::server {

// The names under which the supervisor has the parts of kept contents. ID is the beginning of the
// id of the first of the volumes that share pages, CLONE that of another one:
// gpunbd/ID/table, gpunbd/ID/table/CLONE, gpunbd/ID/slabs and gpunbd/ID/DEVICE/SLAB.
struct ContentsPart {
    // In the order in which they are removed: slabs without a table are not taken over.
    enum class Kind : std::uint8_t { table, directory, slab };
    Kind kind = Kind::table;
    std::string clone = {};  // of a table; empty: the first volume
    std::uint32_t device = 0;
    std::uint32_t slab = 0;
    auto operator<=>(const ContentsPart&) const = default;

    static ContentsPart table_of(std::string clone) {
        return {.kind = Kind::table, .clone = std::move(clone)};
    }
    static ContentsPart slab_of(std::uint32_t device, std::uint32_t slab) {
        return {.kind = Kind::slab, .device = device, .slab = slab};
    }
};

struct ContentsName {
    std::string id;
    ContentsPart part;
};
std::string contents_name(std::string_view id, const ContentsPart& part);
std::optional<ContentsName> parse_contents_name(std::string_view name);
std::string contents_id(const storage::InstanceId& instance);

// The parts that the supervisor has of one volume, or of several that share pages.
// A removal can fail, without memory for the message or with a busy supervisor. It then stays
// pending, and each later call retries it. Until it succeeds, nothing else is stored under that
// name, so that a later server cannot mistake the old slab for a new one.
class SupervisorParts {
 public:
    // The store outlives this object. `patience`: the time to wait for a busy supervisor.
    SupervisorParts(DescriptorStore& store, std::string id, std::chrono::milliseconds patience)
        : store_(store), id_(std::move(id)), patience_(patience) {}

    const std::string& id() const { return id_; }
    std::string name_of(const ContentsPart& part) const { return contents_name(id_, part); }

    // While no volume is kept, nothing is stored. `clone`: as in ContentsPart.
    void add_volume(const std::string& clone);
    // Removes its table, and with the last volume all parts. Processes that have opened a part keep
    // their descriptors.
    void drop_volume(const std::string& clone) noexcept;
    // Adds a part that an earlier server has stored.
    void add_kept(const ContentsPart& part);
    // Blocks until the supervisor has the part. Returns false if it may not have it.
    bool keep(const ContentsPart& part, const OwnedFd& descriptor) noexcept;
    void drop(const ContentsPart& part) noexcept;
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

// Passes the parts of one volume to the supervisor.
class VolumeParts final : public storage::KeptParts {
 public:
    // `clone`: as in ContentsPart.
    VolumeParts(std::shared_ptr<SupervisorParts> shared, std::string clone)
        : shared_(std::move(shared)), clone_(std::move(clone)) {
        shared_->add_volume(clone_);
    }

    bool keep_table(const OwnedFd& descriptor) noexcept override {
        return dropped_ || shared_->keep(table_, descriptor);
    }
    bool keep_directory(const OwnedFd& descriptor) noexcept override {
        return shared_->keep(directory_, descriptor);
    }
    bool keep(std::uint32_t device, std::uint32_t slab,
              const OwnedFd& descriptor) noexcept override {
        return shared_->keep(ContentsPart::slab_of(device, slab), descriptor);
    }
    void drop(std::uint32_t device, std::uint32_t slab) noexcept override {
        shared_->drop(ContentsPart::slab_of(device, slab));
    }
    // Returns true until drop_volume() is called. Never waits for the supervisor.
    bool keeps() const noexcept override { return !dropped_; }
    // Removes the volume from the supervisor.
    void drop_volume() noexcept {
        dropped_ = true;
        shared_->drop_volume(clone_);
    }

    const std::shared_ptr<SupervisorParts>& shared() const { return shared_; }
    std::string table_name() const { return shared_->name_of(table_); }

 private:
    const std::shared_ptr<SupervisorParts> shared_;  // shared with volumes that share pages
    const std::string clone_;
    const ContentsPart table_ = ContentsPart::table_of(clone_);
    const ContentsPart directory_{.kind = ContentsPart::Kind::directory};
    std::atomic<bool> dropped_{false};
};

}  // namespace gpunbd::server
