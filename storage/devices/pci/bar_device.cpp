#include "storage/devices/pci/bar_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>

#include "storage/base/log_line.hpp"
#include "storage/base/mutex.hpp"
#include "storage/devices/channel.hpp"
#include "storage/devices/device_driver.hpp"
#include "storage/devices/gpu/copy_path.hpp"
#include "storage/devices/gpu/pci.hpp"
#include "storage/devices/pci/bar_rules.hpp"
#include "storage/devices/pci/mapped_bar.hpp"
#include "storage/devices/ranges.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::storage {

namespace {

// A channel to a BAR: the CPU copies with wide non-temporal stores and loads.
class BarChannel final : public Channel {
 public:
    // With write-combining, writes are received in place. Reads are never sent in place, since the
    // kernel's plain loads take ten times as long.
    BarChannel(const ChannelOptions& options, bool write_combined);

    bool receives_into(const Slab&, std::uint32_t) const override { return write_combined_; }

 protected:
    void progress(CopyQueue& queued) override;

 private:
    const bool write_combined_;
    std::unique_ptr<std::byte[]> memory_;
    CpuPath cpu_;
};

// The CPU makes these copies. One poll does about 0.1 ms of them, so that other clients make
// progress.
constexpr std::uint64_t bar_work_per_poll = 512 << 10;  // bytes stored
constexpr std::uint64_t stores_per_load = 8;            // one load takes as long as so many stores
constexpr std::uint32_t bar_chunk = 64 << 10;           // bytes

ChannelOptions with_chunks(ChannelOptions options) {
    if (options.chunk_size == 0) options.chunk_size = bar_chunk;
    return options;
}

std::uint64_t work_of(const Copy& copy) {
    return copy.kind == Copy::Kind::read ? stores_per_load * copy.length : copy.length;
}

BarChannel::BarChannel(const ChannelOptions& options, bool write_combined)
    : Channel(with_chunks(options)),
      write_combined_(write_combined),
      memory_(std::make_unique<std::byte[]>(2 * options.pinned)) {
    read_staging_.assign(memory_.get(), options.pinned);
    write_staging_.assign(memory_.get() + options.pinned, options.pinned);
}

void BarChannel::progress(CopyQueue& queued) {
    for (std::uint64_t budget = bar_work_per_poll; !queued.empty();) {
        Copy& copy = *queued.pop();
        count(copy.kind == Copy::Kind::read ? PathKind::streaming_load : PathKind::mapping, copy);
        copy.cpu = reinterpret_cast<std::byte*>(copy.address);  // a write has none
        cpu_.add(copy);
        finish(copy, Status::ok);
        const std::uint64_t work = work_of(copy);
        if (work >= budget) return;
        budget -= work;
    }
}

constexpr std::uint64_t mapped_in = 4096;  // bytes: the granularity of mapping and checking

DeviceInfo describe_bar(const PciCard& card, std::uint32_t number, const std::string& sysfs) {
    const PciFacts facts = read_pci_facts(card.address, sysfs + "/bus/pci/devices");
    DeviceInfo info;
    info.id = BarId(card.address, number).id();
    info.name = fmt::format("BAR {} of the PCI card {}", number, card.name);
    info.identity = info.id;
    info.address = card.address;
    info.link = facts.link;
    info.total = card.bars.at(number).bytes;
    info.numa_node = facts.numa_node;
    return info;
}

std::string describe_use(const PciCard& card, std::uint32_t number) {
    const std::string reason = reason_not_served(card, number, true);
    if (!reason.empty()) return "refused: " + reason;
    const std::string user = user_of(card);
    return user.empty() ? "not in use" : "refused unless forced: " + user;
}

class BarDevice final : public Device {
 public:
    BarDevice(std::uint32_t number, const PciCard& card, std::uint32_t bar, std::uint64_t bytes,
              const BarDeviceOptions& options)
        : Device(number),
          info_(describe_bar(card, bar, options.sysfs)),
          memory_(card, bar, bytes),
          ranges_(bytes) {
        info_.reserve = options.reserve.value_or(0);
        info_.capacity = options.capacity;
        info_.access = memory_.write_combined()
                           ? "write-combined: written in place, read by streaming loads"
                           : "not write-combined, which is slow: single stores and loads";
        const std::string reason = reason_not_memory(memory_.data(), bytes);
        if (!reason.empty()) throw std::runtime_error(reason);
        tell(card);
    }

    const DeviceInfo& info() const override { return info_; }
    std::uint64_t available() const override {
        const Lock lock(mutex_);
        return ranges_.free_bytes();
    }
    bool slow_to_allocate() const override { return true; }
    bool exclusive() const override { return true; }
    std::string reason_not_kept() const override {
        return "a server overwrites a BAR to check it before it serves";
    }

    Status allocate(const SlabRequest& request, Slab& out) override {
        if (request.kept) return Status::io_error;
        const auto offset = take(request.bytes);
        if (!offset) return Status::no_space;
        out = {.cpu = memory_.data() + *offset,
               .address = reinterpret_cast<std::uintptr_t>(memory_.data() + *offset),
               .bytes = request.bytes,
               .handle = *offset,
               .resident = request.provision == Provision::full};
        return clear(out, 0, out.bytes);
    }
    void release(Slab& slab) noexcept override {
        const Lock lock(mutex_);
        ranges_.give_back(slab.handle);
        slab = Slab{};
    }
    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        zero_streaming(slab.cpu + offset, bytes);
        store_fence();
        return Status::ok;
    }
    std::unique_ptr<Channel> open_channel(const ChannelOptions& options) override {
        return std::make_unique<BarChannel>(options, memory_.write_combined());
    }

 private:
    std::optional<std::uint64_t> take(std::uint64_t bytes) {
        try {
            const Lock lock(mutex_);
            return ranges_.take(bytes);
        } catch (const std::bad_alloc&) {
            return std::nullopt;
        }
    }
    void tell(const PciCard& card) const {
        LogLine(spdlog::level::info)
            .with("device", info_.id)
            .log("{}: {}, {}, {}{}", info_.id, info_.name, bar_size(info_.total), info_.access,
                 card.enabled ? "" : "; the card has been enabled");
        const std::string user = user_of(card);
        LogLine(spdlog::level::warn, !user.empty())
            .with("device", info_.id)
            .log("{}: forced: {}", info_.id, user);
    }

    DeviceInfo info_;
    MappedBar memory_;
    mutable Mutex mutex_;
    Ranges ranges_ GUARDED_BY(mutex_);
};

// Uses the start of the BAR: if less memory is behind it, it lies there.
std::uint64_t bytes_to_use(std::uint64_t all, const BarDeviceOptions& options) {
    const std::uint64_t kept = std::min(all, options.reserve.value_or(0));
    const std::uint64_t bytes = std::min(all - kept, options.capacity.value_or(all));
    return bytes / mapped_in * mapped_in;
}

std::unique_ptr<Device> open_bar(std::uint32_t number, const BarId& place,
                                 const BarDeviceOptions& options) {
    const auto card = read_pci_card(place.card, options.sysfs);
    if (!card) throw std::runtime_error("unknown card; lspci -D lists the cards");
    const std::string reason = reason_not_served(*card, place.number, options.force);
    if (!reason.empty()) throw std::runtime_error(reason);
    const std::uint64_t all = card->bars.at(place.number).bytes;
    const std::uint64_t bytes = bytes_to_use(all, options);
    if (bytes == 0) {
        throw std::runtime_error(
            fmt::format("its {} are less than the reserve; set a smaller reserve", bar_size(all)));
    }
    return std::make_unique<BarDevice>(number, *card, place.number, bytes, options);
}

}  // namespace

std::unique_ptr<Device> open_bar_device(std::uint32_t number, const BarId& place,
                                        const BarDeviceOptions& options) {
    const auto named = [&](const std::exception& error) {
        return fmt::format("{}: {}", place.id(), error.what());
    };
    try {
        return open_bar(number, place, options);
    } catch (const DeviceInUse& error) {
        throw DeviceInUse(named(error));
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(named(error));
    }
}

std::vector<DeviceInfo> list_bars(const std::string& sysfs) {
    std::vector<DeviceInfo> all;
    for (const PciCard& card : pci_cards(sysfs)) {
        for (std::uint32_t number = 0; number != card.bars.size(); ++number) {
            const Bar& bar = card.bars.at(number);
            if (!bar.prefetchable || bar.bytes < smallest_listed_bar) continue;
            DeviceInfo info = describe_bar(card, number, sysfs);
            info.access = describe_use(card, number);
            all.push_back(std::move(info));
        }
    }
    return all;
}

}  // namespace gpunbd::storage
