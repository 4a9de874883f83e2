// Gives what one volume consists of to the supervisor, under names by which the next server finds
// it: gpunbd/ID/table, gpunbd/ID/DEVICE/SLAB. ID is the beginning of the instance's.
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

// A name of that kind, taken apart.
struct ContentsName {
    std::string id;
    struct Place {
        std::uint32_t device = 0;
        std::uint32_t slab = 0;
        auto operator<=>(const Place&) const = default;
    };
    std::optional<Place> place;  // unset: the table
};
std::optional<ContentsName> parse_contents_name(std::string_view name);
std::string contents_id(const storage::InstanceId& instance);

// A removal may fail: there is no memory for the message, or the supervisor takes none. Then it
// stays pending and is tried again by each later call. Until it has succeeded, nothing else is
// stored under its name, so that no later server can mistake the old slab for a new one.
class ContentsRetainer final : public storage::SlabRetainer {
 public:
    using Part = std::optional<ContentsName::Place>;

    // The store outlives it. `patience`: with a supervisor that is busy.
    ContentsRetainer(DescriptorStore& store, std::string id, std::chrono::milliseconds patience)
        : store_(store), id_(std::move(id)), patience_(patience) {}

    bool keep_table(const OwnedFd& descriptor) noexcept override;
    bool keep(std::uint32_t device, std::uint32_t slab,
              const OwnedFd& descriptor) noexcept override;
    void forget(std::uint32_t device, std::uint32_t slab) noexcept override;

    // An earlier server gave it to the supervisor.
    void knows(const Part& part) { parts_.emplace(part, State::kept); }
    // forget_all() has not been called. Does not wait, however busy the supervisor is.
    bool keeps() const { return !forgotten_; }
    // The supervisor is to remove all of it, the table first: slabs without a table belong to
    // nothing. Processes that have a part of it open keep that.
    void forget_all() noexcept;
    // Tries pending removals again. False: some are pending still.
    bool finish_removals() noexcept;
    std::string name_of(const Part& part) const;

 private:
    // kept: the supervisor has it, or may have it. removing: its removal is pending.
    enum class State { kept, removing };

    bool give(const Part& part, const OwnedFd& descriptor) noexcept;
    // With the lock held.
    bool remove_pending() noexcept;
    void report_pending(std::string_view why) noexcept;

    DescriptorStore& store_;
    const std::string id_;
    const std::chrono::milliseconds patience_;
    // Changed with the lock held, which may be held for as long as the supervisor is busy.
    std::atomic<bool> forgotten_{false};
    std::atomic<bool> removals_pending_{false};
    std::mutex mutex_;             // guards what follows
    std::map<Part, State> parts_;  // the table comes first
    bool pending_reported_ = false;
};

}  // namespace gpunbd::server
