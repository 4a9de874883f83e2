// A device whose allocate(), clear(), copy(), release() and address() block until a test opens a
// latch. It also calls back before and after each change of memory, if a test wants that.
#pragma once

#include "tests/storage/memory_device.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {

class Latch {
 public:
    void close() { is_closed_ = true; }
    void open() {
        is_closed_ = false;
        is_closed_.notify_all();
    }
    // Blocks until the latch is open.
    void pass() {
        ++inside_;
        is_closed_.wait(true);
        --inside_;
        ++passed_;
    }
    int passed() const { return passed_; }
    bool is_holding() const { return inside_ != 0; }
    // Waits until a thread blocks.
    void wait_for_one() const {
        while (!is_holding()) std::this_thread::yield();
    }

 private:
    std::atomic<bool> is_closed_{false};
    std::atomic<int> inside_{0};
    std::atomic<int> passed_{0};
};

class LatchDevice : public Device {
    template <class Call>
    auto change(Call call) {
        if (at_change_) at_change_();
        auto result = call();
        if (at_change_) at_change_();
        return result;
    }

 public:
    LatchDevice(std::uint32_t number, const MemoryDevice::Options& options,
                std::function<void()> at_change = {})
        : Device(number), memory(number, options), at_change_(std::move(at_change)) {}
    ~LatchDevice() override { CHECK_FALSE(releases().pending()); }

    const DeviceInfo& info() const override { return memory.info(); }
    std::uint64_t available() const override { return memory.available(); }
    bool sends_in_place() const override { return memory.sends_in_place(); }
    bool slow_to_allocate() const override { return memory.slow_to_allocate(); }
    std::string reason_not_kept() const override { return memory.reason_not_kept(); }
    Status allocate(const SlabRequest& request, Slab& out) override {
        allocating.pass();
        return change([&] { return memory.allocate(request, out); });
    }
    Status take_over(OwnedFd& descriptor, const SlabRecord& record, Slab& out) override {
        const Status status = change([&] { return memory.take_over(descriptor, record, out); });
        if (status == Status::ok && addressed_later) out.cpu = nullptr;
        return status;
    }
    std::byte* address(const Slab& slab) override {
        addressing.pass();
        return reinterpret_cast<std::byte*>(slab.address);
    }
    void release(Slab& slab) noexcept override {
        releasing.pass();
        slab.cpu = reinterpret_cast<std::byte*>(slab.address);
        change([&] { return memory.release(slab), true; });
    }
    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        clearing.pass();
        return change([&] { return memory.clear(slab, offset, bytes); });
    }
    Status copy(const Slab& from, std::uint64_t from_offset, const Slab& to,
                std::uint64_t to_offset, std::uint64_t bytes) override {
        const Status status =
            change([&] { return memory.copy(from, from_offset, to, to_offset, bytes); });
        copying.pass();
        return status;
    }
    bool discard(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        return slab.cpu != nullptr && change([&] { return memory.discard(slab, offset, bytes); });
    }
    std::unique_ptr<Channel> open_channel(const ChannelOptions& options) override {
        if (channels_left-- <= 0) throw std::runtime_error("no channel is left");
        ++channels_opened;
        return memory.open_channel(options);
    }

    MemoryDevice memory;
    std::atomic<bool> addressed_later{
        false};  // taken-over slabs have no CPU address before address()
    std::atomic<int> channels_left{1'000};
    std::atomic<int> channels_opened{0};
    Latch allocating;
    Latch clearing;
    Latch copying;  // afterwards
    Latch releasing;
    Latch addressing;

 private:
    const std::function<void()> at_change_;
};

}  // namespace gpunbd::storage::test
