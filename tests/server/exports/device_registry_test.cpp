// Finds and opens devices with drivers, some of them for fake GPUs.
#include "server/exports/device_registry.hpp"

#include "storage/devices/host/host_device.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

// Records how it was opened and calibrated.
class Card final : public storage::Device {
 public:
    Card(std::uint32_t number, std::string id) : Device(number) {
        info_.id = std::move(id);
        info_.identity = "GPU-of-" + info_.id;
    }
    const storage::DeviceInfo& info() const override { return info_; }
    std::uint64_t available() const override { return 0; }
    storage::Status allocate(const storage::SlabRequest&, storage::Slab&) override {
        return storage::Status::no_space;
    }
    void release(storage::Slab&) noexcept override {}
    storage::Status clear(const storage::Slab&, std::uint64_t, std::uint64_t) override {
        return storage::Status::io_error;
    }
    std::unique_ptr<storage::Channel> open_channel(const storage::ChannelOptions&) override {
        throw std::runtime_error("there is none");
    }
    std::string calibrate() override {
        if (fails) throw std::runtime_error("it cannot be measured");
        state_ = "found on " + info_.id;
        return "table of " + info_.id;
    }
    std::string calibration_state() const override { return state_; }
    bool restore_calibration(std::string_view state) override {
        if (state != "found on " + info_.id) return false;
        state_ = state;
        return true;
    }

    std::span<const OwnedFd> mapping_files() const override { return {&mapping_file, 1}; }
    bool lacks_mapping() const override { return no_room; }

    bool fails = false;
    bool no_room = false;
    OwnedFd mapping_file;

 private:
    storage::DeviceInfo info_;
    std::string state_;
};

class CardDriver final : public storage::DeviceDriver {
 public:
    CardDriver(std::string scheme, std::size_t count) : scheme_(std::move(scheme)), count_(count) {}
    std::string_view scheme() const override { return scheme_; }
    bool drives_gpus() const override { return true; }
    std::vector<std::string> enumerate(std::string& why_none) const override {
        ++enumerated;
        std::vector<std::string> ids;
        for (std::size_t i = 0; i != count_; ++i) ids.push_back(scheme_ + ":" + std::to_string(i));
        if (ids.empty()) why_none = "no " + scheme_ + " today";
        return ids;
    }
    std::unique_ptr<storage::Device> open(std::string_view id, std::uint32_t number,
                                          const storage::DeviceOptions& options) const override {
        std::string why_none;
        const std::vector<std::string> ids = enumerate(why_none);
        if (std::find(ids.begin(), ids.end(), id) == ids.end()) return nullptr;
        opened_with = options;
        auto card = std::make_unique<Card>(number, std::string(id));
        card->fails = fails;
        card->no_room = no_room;
        return card;
    }

    bool fails = false;
    bool no_room = false;
    mutable int enumerated = 0;
    mutable storage::DeviceOptions opened_with;

 private:
    const std::string scheme_;
    const std::size_t count_;
};

class LittleHost final : public storage::DeviceDriver {
 public:
    std::string_view scheme() const override { return "host"; }
    bool drives_gpus() const override { return false; }
    std::vector<std::string> enumerate(std::string&) const override { return {"host"}; }
    std::unique_ptr<storage::Device> open(std::string_view, std::uint32_t number,
                                          const storage::DeviceOptions&) const override {
        return storage::open_host_device(number, {.reserve = 0, .capacity = 1 << 20});
    }
};

// Its one device is opened only by name.
class NamedOnlyDriver : public storage::DeviceDriver {
 public:
    std::string_view scheme() const override { return "named"; }
    bool drives_gpus() const override { return false; }
    std::vector<std::string> enumerate(std::string&) const override { return {}; }
    std::vector<storage::DeviceInfo> only_by_name() const override {
        storage::DeviceInfo info;
        info.id = "named:1";
        return {info};
    }
    std::unique_ptr<storage::Device> open(std::string_view id, std::uint32_t number,
                                          const storage::DeviceOptions&) const override {
        if (id != "named:1") throw std::runtime_error("there is only named:1");
        ++opened;
        return std::make_unique<Card>(number, std::string(id));
    }

    mutable int opened = 0;
};

std::string refusal(DeviceRegistry& registry, const std::string& id) {
    return error_of([&] { registry.open(id); });
}

TEST_CASE("device registry: devices that lacked room for a mapping can be opened again") {
    CardDriver red("red", 2);
    const std::array<const storage::DeviceDriver*, 1> drivers{&red};
    DeviceRegistry registry({}, false, drivers);
    registry.open("red:1");
    CHECK(!registry.lacks_mapping());
    red.no_room = true;
    registry.open("red:0");
    CHECK(registry.mapping_files().size() == 2);
    CHECK(registry.lacks_mapping());
    registry.close();
    CHECK(!registry.lacks_mapping());
    CHECK(registry.mapping_files().empty());
    red.no_room = false;
    CHECK(registry.open("red:0").number() == 0);
    CHECK(!registry.lacks_mapping());
}

TEST_CASE("device registry: the driver of a scheme opens its devices") {
    const LittleHost host;
    const CardDriver red("red", 2);
    const CardDriver green("green", 12);
    const std::array<const storage::DeviceDriver*, 3> drivers{&host, &red, &green};
    config::DeviceOptions options;
    options.id = "green:11";
    options.reserve = 1;
    options.capacity = 2;
    options.mapped = 3;
    options.revocable = 4;
    options.gpu_use = config::GpuUse::copy_engines;
    options.force = true;
    DeviceRegistry registry({options}, false, drivers);
    CHECK(registry.open("host").available() == 1 << 20);
    CHECK(red.enumerated + green.enumerated == 0);  // no driver is started unless needed
    CHECK(registry.open("green:11").info().id == "green:11");
    CHECK(red.enumerated == 0);
    CHECK(green.opened_with.reserve == 1U);
    CHECK(green.opened_with.capacity == 2U);
    CHECK(green.opened_with.mapped == 3U);
    CHECK(green.opened_with.revocable == 4U);
    CHECK(green.opened_with.gpu_use == storage::GpuUse::copy_engines);
    CHECK(registry.open("red:1").info().id == "red:1");
    CHECK(green.opened_with.force);
    CHECK_FALSE(red.opened_with.reserve);
    CHECK_FALSE(red.opened_with.force);
    CHECK(registry.open("red:1").number() == 2);
    CHECK(&registry.open("red:1") == &registry.open("red:1"));
}

TEST_CASE("device registry: the error about an unknown device lists the available ones") {
    const LittleHost host;
    const CardDriver red("red", 2);
    const CardDriver green("green", 0);
    const CardDriver blue("blue", 0);
    const std::array<const storage::DeviceDriver*, 4> some{&host, &red, &green, &blue};
    DeviceRegistry registry({}, false, some);
    const std::string choices = ": unknown GPU; choose one of host, red:0, red:1";
    for (const char* id : {"red:2", "green:0", "red", "redder:0", "re:0", "", "red:01", "pink:0"}) {
        CHECK(refusal(registry, id) == id + choices);
    }
    const std::array<const storage::DeviceDriver*, 3> none{&host, &green, &blue};
    DeviceRegistry poor({}, false, none);
    CHECK(refusal(poor, "green:0") ==
          "green:0: no GPU can be used: no green today; no blue today; choose host instead");
    std::string why_none;
    CHECK(registry.gpus(why_none) == std::vector<std::string>{"red:0", "red:1"});
    CHECK(why_none.empty());
    const int asked = blue.enumerated;
    CHECK(registry.first_gpu(why_none) == "red:0");
    CHECK(blue.enumerated == asked);  // drivers behind the one that has a GPU are not loaded
}

TEST_CASE("device registry: two ids of one device open it once") {
    const LittleHost host;
    const std::array<const storage::DeviceDriver*, 1> drivers{&host};
    DeviceRegistry registry({}, false, drivers);
    storage::Device& opened = registry.open("host");
    CHECK(&registry.open("host:again") == &opened);
    CHECK(&registry.open("host:again") == &opened);
    CHECK(&registry.open_hardware("host", "") == &opened);
}

TEST_CASE("device registry: a driver names the device of an identity, listed or not") {
    struct Knowing final : NamedOnlyDriver {
        std::optional<std::string> id_of(std::string_view identity) const override {
            if (identity != "GPU-of-named:1") return std::nullopt;
            return "named:1";
        }
    };
    const LittleHost host;
    const Knowing knowing;
    const std::array<const storage::DeviceDriver*, 2> drivers{&host, &knowing};
    DeviceRegistry registry({}, false, drivers);
    CHECK(registry.open_hardware("GPU-of-named:1", "").info().id == "named:1");
    CHECK(knowing.opened == 1);
}

TEST_CASE("device registry: a device that changes on opening is opened only by name") {
    const LittleHost host;
    const CardDriver red("red", 1);
    const NamedOnlyDriver by_name;
    const std::array<const storage::DeviceDriver*, 3> drivers{&host, &red, &by_name};
    DeviceRegistry registry({}, false, drivers);
    const auto listed = registry.only_by_name();
    REQUIRE(listed.size() == 1);
    CHECK(listed[0].id == "named:1");
    CHECK(registry.open_hardware("GPU-of-red:0", "").info().id == "red:0");
    CHECK_THROWS_AS(registry.open_hardware("GPU-of-named:1", ""), std::runtime_error);
    std::string why_none;
    CHECK(registry.gpus(why_none) == std::vector<std::string>{"red:0"});
    CHECK(by_name.opened == 0);
    CHECK(refusal(registry, "named:2") == "there is only named:1");
    CHECK(registry.open("named:1").info().id == "named:1");
    CHECK(by_name.opened == 1);
}

TEST_CASE("device registry: calibration results outlive the registry") {
    const LittleHost host;
    CardDriver red("red", 2);
    const std::array<const storage::DeviceDriver*, 2> drivers{&host, &red};
    DeviceRegistry first({}, true, drivers);
    first.open("host");
    first.open("red:0");
    CHECK(first.calibration("red:0") == "table of red:0");
    CHECK(first.calibration("host").empty());
    const auto states = first.calibration_states();
    CHECK(states == std::map<std::string, std::string>{{"GPU-of-red:0", "found on red:0"}});

    // The next process measures only devices without a result or with an outdated one.
    DeviceRegistry next({}, true, drivers);
    next.set_calibration_states({{"GPU-of-red:0", "found on red:0"}, {"GPU-of-red:1", "odd"}});
    next.open("red:0");
    CHECK(next.calibration("red:0").empty());
    next.open("red:1");
    CHECK(next.calibration("red:1") == "table of red:1");
    CHECK(next.calibration_states() ==
          std::map<std::string, std::string>{{"GPU-of-red:0", "found on red:0"},
                                             {"GPU-of-red:1", "found on red:1"}});

    // The results of devices that are not opened remain.
    DeviceRegistry idle({}, true, drivers);
    idle.set_calibration_states(states);
    CHECK(idle.calibration_states() == states);

    red.fails = true;
    DeviceRegistry failing({}, true, drivers);
    failing.open("red:0");
    CHECK(failing.calibration("red:0").empty());
    CHECK(failing.calibration_states().empty());
}

TEST_CASE("device registry: the drivers of this program have schemes of their own") {
    std::set<std::string_view> schemes;
    for (const storage::DeviceDriver* driver : storage::device_drivers()) {
        CHECK(schemes.insert(driver->scheme()).second);
        CHECK(driver->info().form.starts_with(driver->scheme()));
        std::string why_none;
        const bool none = driver->enumerate(why_none).empty();
        if (driver->drives_gpus()) CHECK(none != why_none.empty());
    }
    CHECK(DeviceRegistry({}, false).others() == std::vector<std::string>{"host"});
}

}  // namespace
}  // namespace gpunbd::server::test
