// The code under test, as the scenarios use it. All that they know of page pools and volumes is
// here.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "storage/pages/volume.hpp"
#include "tests/storage/interleaving/model.hpp"

namespace gpunbd::interleaving {

// Its pages have two words each, which are accessed as clients do, without any order.
class WordDevice final : public storage::Device {
 public:
    WordDevice();
    static std::uint64_t read(std::uint64_t address, unsigned word);
    static void write(std::uint64_t address, unsigned word, std::uint64_t value);

    const storage::DeviceInfo& info() const override { return info_; }
    std::uint64_t available() const override { return std::uint64_t{1} << 40; }
    bool is_system_memory() const override { return true; }
    bool sends_in_place() const override { return true; }
    storage::Status allocate(const storage::SlabRequest& request, storage::Slab& out) override;
    void release(storage::Slab& slab) noexcept override;
    storage::Status clear(const storage::Slab& slab, std::uint64_t offset,
                          std::uint64_t bytes) override;
    storage::Status copy(const storage::Slab& from, std::uint64_t from_offset,
                         const storage::Slab& to, std::uint64_t to_offset,
                         std::uint64_t bytes) override;
    bool discard(const storage::Slab& slab, std::uint64_t offset, std::uint64_t bytes) override;
    std::unique_ptr<storage::Channel> open_channel(const storage::ChannelOptions&) override;

 private:
    storage::DeviceInfo info_;
};

enum class Start : std::uint8_t {
    own,              // volume 0 has page 0
    full,             // both pages
    spilled,          // page 0, in spill memory
    shared,           // page 0 with its clone, volume 1
    shared_in_spill,  // the same in spill memory, and page 1
    sole,             // the same; the clone is gone
    scarce,           // no page; only spill memory has room
    apart,            // volume 0 has had the page that its clone has now
};

class Exports {
 public:
    explicit Exports(Start start);

    Contents contents() const;
    std::uint32_t volumes() const;  // a bit for each

    // Reads the words of a page under one pin.
    void read(unsigned volume, unsigned page, std::array<std::uint8_t, page_words>& out);
    void write(unsigned volume, unsigned page, unsigned word, std::uint8_t value);
    // All words of the page, which replaces a shared one.
    void fill(unsigned volume, unsigned page, std::uint8_t value);
    void unmap(unsigned volume, unsigned page);
    // From the home pool to the spill pool or back. `commits`: otherwise it fails after the copy.
    // `unmaps`: the page is unmapped meanwhile.
    void move(unsigned volume, unsigned page, bool commits, bool unmaps = false);
    void clone(unsigned volume, unsigned to);
    void remove(unsigned volume);
    // Returns what is wrong with the pools when no verb is in progress; empty: nothing. All volumes
    // are gone afterwards.
    std::string check_and_end();

 private:
    WordDevice device_;
    storage::SlabBudget spill_budget_;
    std::array<std::unique_ptr<storage::Volume>, max_volumes> volumes_;
};

}  // namespace gpunbd::interleaving
