// Exports are created and destroyed off the main thread: devices and makers here take as long as a
// test requires.
#include "server/daemon/export_maker.hpp"

#include <doctest/doctest.h>
#include <boost/asio/post.hpp>

#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/exports/volume_disposal.hpp"
#include "tests/server/failing_allocation.hpp"
#include "tests/server/rig.hpp"
#include "tests/storage/memory_device.hpp"

namespace gpunbd::server::test {
namespace {

// One problem, as the mark of a result.
MadeExports made_of(std::string name) { return {.exports = {}, .problems = {std::move(name)}}; }

// A maker that blocks until it is released.
struct Slow {
    ExportMaker::Job job(const std::string& name) {
        return {.prepare = [this, name]() -> ExportMaker::Make {
                    prepared.push_back(name);
                    return [this, name](const std::stop_token&) {
                        gate.get_future().wait();
                        return made_of(name);
                    };
                },
                .done = [this](const MadeExports& made) { done.push_back(made.problems.at(0)); }};
    }
    std::promise<void> gate;
    std::vector<std::string> prepared;
    std::vector<std::string> done;
};

TEST_CASE(
    "ExportMaker: a job in progress does not block the loop, and only the last waiting job runs") {
    boost::asio::io_context io;
    ExportMaker maker(io);
    Slow first;
    Slow next;
    CHECK_FALSE(maker.busy());
    maker.submit(first.job("first"));
    CHECK(maker.busy());
    maker.submit(next.job("second"));
    maker.submit(next.job("third"));
    bool handled = false;
    boost::asio::post(io, [&] { handled = true; });
    io.poll();
    CHECK(handled);
    CHECK(first.done.empty());
    CHECK(next.prepared.empty());
    first.gate.set_value();
    next.gate.set_value();
    io.restart();
    while (next.done.empty()) io.run_one();
    CHECK(first.done == std::vector<std::string>{"first"});
    CHECK(next.prepared == std::vector<std::string>{"third"});
    CHECK(next.done == std::vector<std::string>{"third"});
    CHECK_FALSE(maker.busy());
}

TEST_CASE("ExportMaker: a job may have nothing to make") {
    boost::asio::io_context io;
    ExportMaker maker(io);
    maker.submit({.prepare = [] { return ExportMaker::Make(); },
                  .done = [](const MadeExports&) { FAIL("nothing was made"); }});
    CHECK_FALSE(maker.busy());
}

TEST_CASE("ExportMaker: a failure for lack of memory is reported once there is memory") {
    boost::asio::io_context io;
    ExportMaker maker(io);
    const std::string why = "a reason that is too long to be reported without an allocation";
    std::vector<std::string> reported;
    maker.submit({.prepare = [&]() -> ExportMaker::Make {
                      return [&](const std::stop_token&) -> MadeExports {
                          const std::runtime_error error(why);
                          failing_allocation::take_part();
                          failing_allocation::arm(1, 5);
                          throw error;
                      };
                  },
                  .done = [&](const MadeExports& made) { reported = made.problems; }});
    while (maker.busy()) io.run_one();
    CHECK(failing_allocation::disarm());
    CHECK(reported == std::vector{why});
}

TEST_CASE("ExportMaker: a failure is reported, and the next job runs") {
    boost::asio::io_context io;
    ExportMaker maker(io);
    std::vector<std::string> reported;
    const auto job = [&](const char* why) {
        return ExportMaker::Job{.prepare = [why]() -> ExportMaker::Make {
                                    return [why](const std::stop_token&) -> MadeExports {
                                        throw std::runtime_error(why);
                                    };
                                },
                                .done =
                                    [&](const MadeExports& made) {
                                        reported.push_back(made.problems.at(0));
                                        throw std::bad_alloc();
                                    }};
    };
    maker.submit(job("no memory"));
    maker.submit(job("none again"));
    for (int i = 0; i != 2; ++i) CHECK_THROWS_AS(io.run_one(), std::bad_alloc);
    CHECK(reported == std::vector<std::string>{"no memory", "none again"});
    CHECK_FALSE(maker.busy());
}

TEST_CASE("ExportMaker: give_up() requests a stop") {
    boost::asio::io_context io;
    ExportMaker maker(io);
    Slow next;
    bool done = false;
    maker.give_up();  // no job yet
    maker.submit({.prepare = []() -> ExportMaker::Make {
                      return [](const std::stop_token& stop) {
                          while (!stop.stop_requested()) std::this_thread::yield();
                          return MadeExports();
                      };
                  },
                  .done = [&](const MadeExports&) { done = true; }});
    maker.submit(next.job("next"));
    maker.give_up();
    while (!done) io.run_one();
    CHECK_FALSE(maker.busy());
    CHECK(next.prepared.empty());
}

TEST_CASE("ExportMaker: its destruction cancels the job in progress") {
    boost::asio::io_context io;
    std::atomic<bool> begun{false};
    bool cancelled = false;
    {
        ExportMaker maker(io);
        maker.submit({.prepare = [&]() -> ExportMaker::Make {
                          return [&](const std::stop_token& stop) {
                              begun = true;
                              while (!stop.stop_requested()) std::this_thread::yield();
                              cancelled = true;
                              return MadeExports();
                          };
                      },
                      .done = [](const MadeExports&) { FAIL("called for a cancelled job"); }});
        while (!begun) std::this_thread::yield();
    }
    CHECK(cancelled);
}

TEST_CASE("ExportMaker: the loop may run after a job was stopped or its maker destroyed") {
    boost::asio::io_context io;
    std::optional<ExportMaker> maker(io);
    maker->submit({.prepare = []() -> ExportMaker::Make {
                       return [](const std::stop_token&) { return MadeExports(); };
                   },
                   .done = [](const MadeExports&) { FAIL("called after the stop"); }});
    SUBCASE("stopped") { maker->stop(); }
    SUBCASE("destroyed") { maker.reset(); }
    CHECK_NOTHROW(io.run());
}

TEST_CASE("ExportMaker: a stopped job does not end a later one") {
    boost::asio::io_context io;
    ExportMaker maker(io);
    Slow first;
    Slow next;
    first.gate.set_value();
    maker.submit(first.job("first"));
    maker.stop();
    next.gate.set_value();
    maker.submit(next.job("next"));
    io.run();
    CHECK(first.done.empty());
    CHECK(next.done == std::vector<std::string>{"next"});
    CHECK_FALSE(maker.busy());
}

// Calls a function when memory is allocated, and blocks before memory is released.
class SlowDevice final : public storage::Device {
 public:
    explicit SlowDevice() : Device(0), inner_(0, {}) {}
    const storage::DeviceInfo& info() const override { return inner_.info(); }
    std::uint64_t available() const override { return inner_.available(); }
    bool sends_in_place() const override { return inner_.sends_in_place(); }
    storage::Status allocate(const storage::SlabRequest& request, storage::Slab& out) override {
        if (on_allocate) on_allocate();
        return inner_.allocate(request, out);
    }
    void release(storage::Slab& slab) noexcept override {
        if (gate != nullptr) gate->wait();
        released_by = std::this_thread::get_id();
        inner_.release(slab);
    }
    storage::Status clear(const storage::Slab& slab, std::uint64_t offset,
                          std::uint64_t bytes) override {
        return inner_.clear(slab, offset, bytes);
    }
    std::unique_ptr<storage::Channel> open_channel(
        const storage::ChannelOptions& options) override {
        return inner_.open_channel(options);
    }
    std::uint64_t slabs() const { return inner_.slabs(); }

    std::function<void()> on_allocate;
    std::shared_future<void>* gate = nullptr;
    std::thread::id released_by;

 private:
    storage::test::MemoryDevice inner_;
};

const storage::VolumeOptions full{.size = 256 * mib, .provision = storage::Provision::full};

TEST_CASE("volume: creation is cancelled between two slabs, without a leak") {
    SlowDevice device;
    std::stop_source source;
    int allocations = 0;
    device.on_allocate = [&] {
        if (++allocations == 2) source.request_stop();
    };
    const auto made = storage::Volume::create(full, {&device}, source.get_token());
    CHECK(std::holds_alternative<storage::Misfit>(made));
    CHECK(allocations == 2);
    CHECK(device.slabs() == 0);
}

TEST_CASE("volume disposal: releasing a volume does not wait for its destruction") {
    SlowDevice device;
    std::promise<void> promise;
    std::shared_future<void> gate(promise.get_future());
    device.gate = &gate;
    {
        VolumeDisposal disposal;
        for (int i = 0; i != 2; ++i) {
            auto made = storage::Volume::create(full, {&device});
            REQUIRE(std::holds_alternative<std::unique_ptr<storage::Volume>>(made));
            auto volume =
                disposal.shared(std::move(std::get<std::unique_ptr<storage::Volume>>(made)));
            CHECK(volume->size() == full.size);
        }
        CHECK(device.slabs() == 8);  // both are released, and neither is destroyed yet
        promise.set_value();
    }
    CHECK(device.slabs() == 0);
    CHECK(device.released_by != std::this_thread::get_id());
}

}  // namespace
}  // namespace gpunbd::server::test
