// Passes the parts of one volume to the supervisor. The names, by which the next server finds them,
// are gpunbd/ID/table and gpunbd/ID/DEVICE/SLAB; ID is the beginning of the instance's id.
#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "server/supervisor/descriptor_store.hpp"
#include "storage/pages/page_table.hpp"
#include "storage/pages/slab_retainer.hpp"

namespace gpunbd::server {

// Such a name, parsed.
struct ContentsName {
    std::string id;
    struct SlabKey {
        std::uint32_t device = 0;
        std::uint32_t slab = 0;
        auto operator<=>(const SlabKey&) const = default;
    };
    std::optional<SlabKey> key;  // unset: the table
};
std::optional<ContentsName> parse_contents_name(std::string_view name);
std::string contents_id(const storage::InstanceId& instance);

// A removal can fail, without memory for the message or with a busy supervisor. It then stays
// pending, and each later call retries it. Until it succeeds, nothing else is stored under that
// name, so that a later server cannot mistake the old slab for a new one.
class ContentsRetainer final : public storage::SlabRetainer {
 public:
    using Part = std::optional<ContentsName::SlabKey>;

    // The store outlives this object. `patience`: the time to wait for a busy supervisor.
    ContentsRetainer(DescriptorStore& store, std::string id, std::chrono::milliseconds patience)
        : store_(store), id_(std::move(id)), patience_(patience) {}

    bool keep_table(const OwnedFd& descriptor) noexcept override;
    bool keep(std::uint32_t device, std::uint32_t slab,
              const OwnedFd& descriptor) noexcept override;
    void forget(std::uint32_t device, std::uint32_t slab) noexcept override;

    // Adds a part that an earlier server has stored.
    void add_stored(const Part& part) { parts_.emplace(part, State::kept); }
    // Returns true until forget_all() is called. Never waits for the supervisor.
    bool keeps() const { return !forgotten_; }
    // Removes all parts from the supervisor. The table is removed first, because slabs without a
    // table are not taken over. Processes that have opened a part keep their descriptors.
    void forget_all() noexcept;
    // Retries pending removals. Returns false if some are still pending.
    bool finish_removals() noexcept;
    std::string name_of(const Part& part) const;

 private:
    // kept: the supervisor stores it, or may store it. removing: its removal is pending.
    enum class State { kept, removing };

    bool give(const Part& part, const OwnedFd& descriptor) noexcept;
    // With the lock held.
    bool remove_pending() noexcept;
    void report_pending(std::string_view why) noexcept;

    DescriptorStore& store_;
    const std::string id_;
    const std::chrono::milliseconds patience_;
    // Changed with the lock held, which can take as long as the supervisor is busy.
    std::atomic<bool> forgotten_{false};
    std::atomic<bool> removals_pending_{false};
    std::mutex mutex_;             // guards the following
    std::map<Part, State> parts_;  // sorts the table before the slabs
    bool pending_reported_ = false;
};

}  // namespace gpunbd::server
