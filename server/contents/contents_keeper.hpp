// Gives what one volume consists of to the supervisor, under names by which the next server finds
// it: gpunbd/ID/table, gpunbd/ID/DEVICE/SLAB. ID is the beginning of the instance's.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "server/keeping/descriptor_store.hpp"
#include "storage/pages/page_table.hpp"
#include "storage/pages/slab_keeper.hpp"

namespace gpunbd::server {

// A name of that kind, taken apart.
struct ContentsName {
    std::string id;
    struct Place {
        std::uint32_t device = 0;
        std::uint32_t slab = 0;
    };
    std::optional<Place> place;  // unset: the table
};
std::optional<ContentsName> parse_contents_name(std::string_view name);
std::string contents_id(const storage::InstanceId& instance);

class ContentsKeeper final : public storage::SlabKeeper {
 public:
    // The store outlives it. `patience`: with a supervisor that is busy.
    ContentsKeeper(DescriptorStore& store, std::string id, std::chrono::milliseconds patience)
        : store_(store), id_(std::move(id)), patience_(patience) {}

    bool keep_table(int descriptor) noexcept override;
    bool keep(std::uint32_t device, std::uint32_t slab, int descriptor) noexcept override;
    void forget(std::uint32_t device, std::uint32_t slab) noexcept override;

    // An earlier server gave it to the supervisor.
    void knows(std::string name) { names_.insert(std::move(name)); }
    bool keeps() const;
    // Ends all of it; who has a part of it open keeps that.
    void forget_all() noexcept;
    std::string table_name() const;
    std::string slab_name(std::uint32_t device, std::uint32_t slab) const;

 private:
    bool give(const std::string& name, int descriptor) noexcept;
    void end(const std::string& name) noexcept;

    DescriptorStore& store_;
    const std::string id_;
    const std::chrono::milliseconds patience_;
    mutable std::mutex mutex_;
    std::set<std::string> names_;
    bool forgotten_ = false;
};

}  // namespace gpunbd::server
