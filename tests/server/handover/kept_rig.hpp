// Consecutive servers with kept contents, with a fake supervisor.
#pragma once

#include "server/daemon/export_factory.hpp"
#include "server/handover/kept_contents.hpp"
#include "tests/server/supervisor/living_supervisor.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {

using Names = std::vector<std::string>;

inline constexpr std::uint64_t kept_page = 64 << 10;
inline constexpr std::uint64_t kept_slab = 64 << 20;  // as the page size: each page is a slab

// Devices "memory:0" and so on.
class MemoryDriver final : public storage::DeviceDriver {
 public:
    explicit MemoryDriver(std::uint32_t count) : count_(count) {}
    std::string_view scheme() const override { return "memory"; }
    bool drives_gpus() const override { return false; }
    std::vector<std::string> enumerate(std::string&) const override {
        Names ids;
        for (std::uint32_t i = 0; i != count_; ++i) ids.push_back("memory:" + std::to_string(i));
        return ids;
    }
    std::unique_ptr<storage::Device> open(std::string_view id, std::uint32_t,
                                          const storage::DeviceOptions&) const override {
        std::string why_none;
        const Names ids = enumerate(why_none);
        const auto found = std::find(ids.begin(), ids.end(), id);
        if (found == ids.end()) return nullptr;
        return std::make_unique<storage::test::LatchDevice>(
            static_cast<std::uint32_t>(found - ids.begin()),
            storage::test::MemoryDevice::Options{});
    }

 private:
    const std::uint32_t count_;
};

inline config::ExportOptions kept_export(const std::string& name, std::uint64_t pages = 8) {
    config::ExportOptions options;
    options.name = name;
    options.size = config::Size{.bytes = pages * kept_page};
    options.devices = {"memory:0", "memory:1"};
    options.layout = config::LayoutKind::stripe;
    options.stripe_size = kept_page;
    options.page_size = kept_page;
    options.keep = true;
    return options;
}

// On one device; each page is a slab.
inline config::ExportOptions export_of_slabs(const std::string& name, std::uint64_t slabs) {
    config::ExportOptions options;
    options.name = name;
    options.size = config::Size{.bytes = slabs * kept_slab};
    options.devices = {"memory:0"};
    options.page_size = kept_slab;
    options.keep = true;
    return options;
}

struct ServerOptions {
    std::uint32_t devices = 2;
    std::optional<std::uint64_t> capacity = {};  // of the supervisor
    std::chrono::milliseconds patience = std::chrono::minutes(1);
    std::vector<config::DeviceOptions> device_options = {};
};

// One server and its lifetime.
class Life {
 public:
    explicit Life(LivingSupervisor& supervisor, const ServerOptions& options = {})
        : Life(supervisor.hand_over(), supervisor.way, options) {}
    Life(PassedDescriptors handed_over, const NotifySocket& way, const ServerOptions& options = {})
        : handed_over_(std::move(handed_over)),
          store(way, options.capacity, handed_over_.names()),
          driver_(options.devices),
          devices_(options.device_options, false, drivers_),
          contents(store, handed_over_, options.patience) {}

    // As at a start or a reload. Earlier exports are held until settle().
    MadeExports make(const config::ExportList& options) {
        MadeExports made = make_exports(options, devices_, exports,
                                        {.disposal = &disposal_,
                                         .contents = &contents,
                                         .restores_later = restores_later,
                                         .not_restored = not_restored,
                                         .renaming = renaming});
        if (made.problems.empty()) before_ = std::exchange(exports, made.exports);
        refused = made.refused;
        return made;
    }
    // Those of a reloaded configuration, for the next make().
    void set_options(const std::vector<config::DeviceOptions>& options) {
        devices_.set_options(options);
    }
    std::optional<KeptContents::Clock::time_point> settle(KeptContents::Clock::time_point now) {
        std::vector<KeptContents::Offered> offered;
        for (const auto& each : exports) {
            offered.push_back({each->info.name, each->options.keep, each->volume});
        }
        for (const auto& each : refused) offered.push_back({each.name, true, nullptr});
        const auto next = contents.settle(offered, std::chrono::seconds(60), now);
        before_.clear();
        return next;
    }
    std::string instance(std::size_t number = 0) { return exports.at(number)->info.instance; }
    storage::Volume& volume() { return *exports.at(0)->volume; }
    storage::test::LatchDevice& device(std::uint32_t number = 0) {
        return dynamic_cast<storage::test::LatchDevice&>(
            devices_.open("memory:" + std::to_string(number)));
    }
    // Allocates memory for these pages.
    void fill(std::uint64_t pages) {
        for (std::uint64_t number = 0; number != pages; ++number) {
            storage::PageRef held;
            REQUIRE(volume().map(number, held) == storage::Status::ok);
        }
    }
    std::string state_of(const std::string& name) {
        for (const auto& each : contents.summaries()) {
            if (each.name == name) return each.state;
        }
        return "there is none";
    }

 private:
    PassedDescriptors handed_over_;

 public:
    DescriptorStore store;

 private:
    const MemoryDriver driver_;
    const std::array<const storage::DeviceDriver*, 1> drivers_{&driver_};
    DeviceRegistry devices_;
    VolumeDisposal disposal_;

 public:
    KeptContents contents;

 private:
    ExportRegistry::Exports before_;

 public:
    ExportRegistry::Exports exports;
    std::vector<MadeExports::Refused> refused;
    bool restores_later = false;
    std::map<std::string, std::string> not_restored;
    std::optional<Renaming> renaming;
};

}  // namespace gpunbd::server::test
