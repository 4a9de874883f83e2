// A device that holds those who allocate, clear or release until a test lets them go: what others
// can do meanwhile.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "tests/storage/memory_device.hpp"

namespace gpunbd::storage::test {

class Latch {
 public:
    void close() { is_closed_ = true; }
    void open() {
        is_closed_ = false;
        is_closed_.notify_all();
    }
    // Until it is open.
    void pass() {
        ++inside_;
        is_closed_.wait(true);
        --inside_;
    }
    // Until somebody is held.
    void wait_for_one() const {
        while (inside_ == 0) std::this_thread::yield();
    }

 private:
    std::atomic<bool> is_closed_{false};
    std::atomic<int> inside_{0};
};

class LatchDevice final : public Device {
 public:
    LatchDevice(std::uint32_t number, const MemoryDevice::Options& options)
        : Device(number), memory(number, options) {}

    const DeviceInfo& info() const override { return memory.info(); }
    std::uint64_t available() const override { return memory.available(); }
    bool slow_to_allocate() const override { return memory.slow_to_allocate(); }
    std::string why_not_kept() const override { return memory.why_not_kept(); }
    Status allocate(const SlabRequest& request, Slab& out) override {
        allocating.pass();
        return memory.allocate(request, out);
    }
    void release(Slab& slab) noexcept override {
        releasing.pass();
        memory.release(slab);
    }
    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        clearing.pass();
        return memory.clear(slab, offset, bytes);
    }
    bool discard(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        return memory.discard(slab, offset, bytes);
    }
    std::unique_ptr<Channel> open_channel(const ChannelOptions& options) override {
        return memory.open_channel(options);
    }

    MemoryDevice memory;
    Latch allocating;
    Latch clearing;
    Latch releasing;
};

}  // namespace gpunbd::storage::test
