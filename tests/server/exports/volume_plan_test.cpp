// Computes the size of a volume from the options of its export, and the error if it does not fit.
#include "server/exports/volume_plan.hpp"

#include "storage/devices/host/host_device.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using config::GiB;
using config::MiB;
using storage::CapacityError;
using storage::test::MemoryDevice;

config::ExportOptions on(std::vector<std::string> devices) {
    config::ExportOptions options;
    options.devices = std::move(devices);
    return options;
}

std::string complaint(const config::ExportOptions& options, DeviceRegistry& registry,
                      const Promised& promised = {}) {
    return error_of([&] { return plan_volume(options, registry, promised); });
}

DeviceRegistry host_of(std::uint64_t capacity, std::uint64_t reserve = 0) {
    config::DeviceOptions host;
    host.id = "host";
    host.capacity = capacity;
    host.reserve = reserve;
    return {{host}, false};
}

TEST_CASE("volume plan: a percentage is a share of the available memory") {
    DeviceRegistry registry = host_of(100 * MiB);
    auto options = on({"host"});
    CHECK(plan_volume(options, registry).options.size == 100 * MiB);
    for (const std::uint32_t percent : {1U, 33U, 50U, 99U, 100U}) {
        options.size = config::Size{.percent = percent};
        const std::uint64_t share = percent * MiB;
        CHECK(plan_volume(options, registry).options.size == share / 512 * 512);
    }
    storage::Device& host = registry.open("host");
    options.size = config::Size{.percent = 50};
    CHECK(plan_volume(options, registry, {{&host, 40 * MiB}}).options.size == 30 * MiB);
    CHECK(host.available() == 100 * MiB);
}

TEST_CASE("volume plan: a share is a multiple of the block size") {
    DeviceRegistry registry = host_of(100 * MiB);
    auto options = on({"host"});
    options.size = config::Size{.percent = 33};
    for (const std::uint64_t block : {1U, 512U, 4096U, 65536U}) {
        options.block_size.minimum = block;
        const std::uint64_t unit = std::max<std::uint64_t>(block, 512);
        CHECK(plan_volume(options, registry).options.size == 33 * MiB / unit * unit);
    }
    DeviceRegistry little = host_of(2 * MiB);
    options.size = config::Size{.percent = 1};
    CHECK(complaint(options, little) ==
          "1% of the 2 MiB available on host is less than a block of 65536 bytes; set a larger "
          "share");
}

// Each of its devices is the same hardware as those of other drivers.
class SameDriver final : public storage::DeviceDriver {
 public:
    explicit SameDriver(std::string_view scheme) : scheme_(scheme) {}
    std::string_view scheme() const override { return scheme_; }
    bool drives_gpus() const override { return true; }
    std::vector<std::string> enumerate(std::string&) const override {
        return {std::string(scheme_) + ":0"};
    }
    std::unique_ptr<storage::Device> open(std::string_view, std::uint32_t number,
                                          const storage::DeviceOptions&) const override {
        return storage::open_host_device(number, {.reserve = 0, .capacity = 64 * MiB});
    }

 private:
    const std::string_view scheme_;
};

TEST_CASE("volume plan: an export cannot use a card through two drivers") {
    const SameDriver red("red");
    const SameDriver blue("blue");
    const std::array<const storage::DeviceDriver*, 2> drivers{&red, &blue};
    DeviceRegistry registry({}, false, drivers);
    CHECK(complaint(on({"red:0"}), registry).empty());
    CHECK(complaint(on({"red:0", "blue:0"}), registry) ==
          "red:0 and blue:0 are the same device, host; leave one out");
}

TEST_CASE("volume plan: without a GPU a share is one of the host, and the default is small") {
    std::string why_none;
    if (!DeviceRegistry({}, false).gpus(why_none).empty()) {
        MESSAGE("SKIPPED: there is a GPU here");
        return;
    }
    const std::uint64_t capacity = 64 * MiB;
    DeviceRegistry registry = host_of(capacity);
    auto options = on({});
    options.size = config::Size{.percent = 50};
    const VolumePlan half = plan_volume(options, registry);
    CHECK(half.options.size == capacity / 2);
    CHECK(half.instead_of_gpu == why_none);
    options.size = config::Size{.percent = 100};
    CHECK(plan_volume(options, registry).options.size == capacity);
    options.size.reset();
    CHECK(complaint(options, registry).starts_with("1G do not fit on host"));
}

TEST_CASE("volume plan: memory promised to other volumes is not available") {
    DeviceRegistry registry = host_of(100 * MiB);
    auto options = on({"host"});
    options.size = config::Size{.bytes = 80 * MiB};
    CHECK(complaint(options, registry).empty());
    CHECK(complaint(options, registry, {{&registry.open("host"), 30 * MiB}}) ==
          "80M do not fit on host: 70 MiB are available; set a size of at most 70M, or 100%");
    DeviceRegistry modest = host_of(10 * MiB, 3 * MiB);
    CHECK(complaint(options, modest) ==
          "80M do not fit on host: 10 MiB are available beside a reserve of 3 MiB; set a size of "
          "at most 10M, or 100%");
    CHECK(
        complaint(options, registry, {{&registry.open("host"), 100 * MiB}}) ==
        "no memory is available on host; stop the programs that use it, or set a smaller reserve");
}

TEST_CASE("volume plan: the error states what is available and what fits") {
    MemoryDevice first(0, {});
    MemoryDevice second(1, {});
    const std::vector<storage::Device*> one{&first};
    const std::vector<storage::Device*> two{&first, &second};
    const struct {
        const char* name;
        CapacityError error;
        std::uint64_t size;
        std::vector<storage::Device*> devices;
        const char* text;
    } rows[] = {
        {"one device",
         {.asked = 64 * GiB, .available = 12 * GiB + 300 * MiB, .largest = 12 * GiB + 300 * MiB},
         64 * GiB,
         one,
         "64G do not fit on memory:0: 12.3 GiB are available; set a size of at most 12G, or 100%"},
        {"less than ten units is printed in the next smaller unit",
         {.asked = 64 * GiB, .available = 9 * GiB + 300 * MiB, .largest = 9 * GiB + 300 * MiB},
         64 * GiB,
         one,
         "64G do not fit on memory:0: 9.3 GiB are available; set a size of at most 9516M, or 100%"},
        {"sizes that would look equal are printed exactly",
         {.asked = 12 * GiB + 2 * MiB, .available = 12 * GiB, .largest = 12 * GiB},
         12 * GiB + 2 * MiB,
         one,
         "12290M do not fit on memory:0: 12G are available; set a size of at most 12G, or 100%"},
        {"several devices",
         {.asked = 64 * GiB, .available = 12 * GiB, .largest = 12 * GiB},
         64 * GiB,
         two,
         "64G do not fit on memory:0, memory:1: 12 GiB are available beside their reserves; set a "
         "size of at most 12G, or 100%"},
        {"a stripe",
         {.device = 1, .asked = 32 * GiB, .available = 12 * GiB, .largest = 24 * GiB},
         64 * GiB,
         two,
         "64G do not fit as a stripe over memory:0, memory:1: memory:1 needs 32G, and 12 GiB are "
         "available; set a size of at most 24G, or 100%"},
        {"a stripe over nothing",
         {.device = 0, .asked = 32 * GiB},
         64 * GiB,
         two,
         "64G do not fit as a stripe over memory:0, memory:1: memory:0 needs 32G, and 0 bytes are "
         "available; stop the programs that use the rest, or set a smaller reserve"},
        {"somebody was faster",
         {.device = 1, .asked = 32 * GiB, .ran_out = true},
         64 * GiB,
         two,
         "memory:1 ran out of memory while 32 GiB were allocated; set a smaller size, or provision "
         "thin"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.name);
        CHECK(error_text(row.error, {.size = row.size}, row.devices) == row.text);
    }
}

TEST_CASE("volume plan: the proposed size fits") {
    for (const std::uint64_t capacity :
         {64 * config::KiB, 5 * MiB, 10 * MiB, 100 * MiB + 1, 777 * MiB, 10 * GiB - 1}) {
        CAPTURE(capacity);
        for (const bool stripe : {false, true}) {
            const storage::VolumeOptions options{.size = 64 * GiB,
                                                 .page_size = 64 * config::KiB,
                                                 .stripe_size = stripe ? 192 * config::KiB : 0};
            const std::vector<std::uint64_t> available{capacity, capacity + 3 * MiB};
            const auto error = std::get<CapacityError>(storage::lay_out(options, available));
            auto smaller = options;
            smaller.size = error.largest;
            if (error.largest != 0) {
                CHECK(
                    std::holds_alternative<storage::Layout>(storage::lay_out(smaller, available)));
            }
        }
    }
}

}  // namespace
}  // namespace gpunbd::server::test
