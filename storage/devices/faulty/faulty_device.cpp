#include "storage/devices/faulty/faulty_device.hpp"

#include <cstring>
#include <utility>
#include <vector>

namespace gpunbd::storage {

namespace {

// True once, when the countdown expires.
bool expires(std::atomic<std::int64_t>& countdown) {
    std::int64_t seen = countdown.load();
    while (seen >= 0 && !countdown.compare_exchange_weak(seen, seen - 1)) {
    }
    return seen == 0;
}

class FaultyDevice final : public Device {
 public:
    FaultyDevice(std::unique_ptr<Device> inner, FaultScript& script)
        : Device(inner->number()), inner_(std::move(inner)), script_(script) {}

    const DeviceInfo& info() const override { return inner_->info(); }
    std::uint64_t available() const override { return inner_->available(); }
    std::uint64_t free_memory() const override { return inner_->free_memory(); }
    bool failed() const override { return failed_.load(std::memory_order_relaxed); }
    DeviceUse use(std::uint64_t allocated) const override {
        DeviceUse use = inner_->use(allocated);
        use.revocable_excess = script_.revocable_excess;
        return use;
    }
    bool slow_to_allocate() const override { return inner_->slow_to_allocate(); }
    void fail() { failed_ = true; }
    FaultScript& script() { return script_; }

    std::string reason_not_kept() const override { return inner_->reason_not_kept(); }

    Status allocate(const SlabRequest& request, Slab& out) override {
        if (expires(script_.allocations_until_failure)) {
            script_.allocations_until_failure = 0;
            return Status::no_space;
        }
        const Status status = inner_->allocate(request, out);
        if (status == Status::ok) {
            hide(out);
            out.revocable = script_.revocable && !request.fixed;
        }
        return status;
    }
    Status take_over(OwnedFd& descriptor, const SlabRecord& record, Slab& out) override {
        if (expires(script_.take_overs_until_failure)) return Status::io_error;
        const Status status = inner_->take_over(descriptor, record, out);
        if (status != Status::ok) return status;
        hide(out);
        if (script_.addressed_later) out.cpu = nullptr;
        return status;
    }
    std::byte* address(const Slab& slab) override {
        return script_.unaddressable ? nullptr : reinterpret_cast<std::byte*>(slab.address);
    }
    void release(Slab& slab) noexcept override {
        slab.cpu = reinterpret_cast<std::byte*>(slab.address);
        inner_->release(slab);
    }
    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        return inner_->clear(InnerSlab(slab).slab(), offset, bytes);
    }
    void populate(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        inner_->populate(InnerSlab(slab).slab(), offset, bytes);
    }
    bool discard(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        return inner_->discard(InnerSlab(slab).slab(), offset, bytes);
    }
    std::unique_ptr<Channel> open_channel(const ChannelOptions& options) override;

 private:
    void hide(Slab& slab) const {
        slab.address = reinterpret_cast<std::uintptr_t>(static_cast<std::byte*>(slab.cpu));
        if (script_.in_place_up_to == 0) slab.cpu = nullptr;
    }
    // The slab as the inner device made it. Borrows the descriptor.
    class InnerSlab {
     public:
        explicit InnerSlab(const Slab& slab)
            : slab_{.cpu = reinterpret_cast<std::byte*>(slab.address),
                    .address = slab.address,
                    .bytes = slab.bytes,
                    .handle = slab.handle,
                    .resident = slab.resident,
                    .kind = slab.kind,
                    .descriptor = OwnedFd(slab.descriptor.get())} {}
        ~InnerSlab() { static_cast<void>(slab_.descriptor.release()); }
        InnerSlab(const InnerSlab&) = delete;
        InnerSlab& operator=(const InnerSlab&) = delete;
        const Slab& slab() const { return slab_; }

     private:
        Slab slab_;
    };

    std::unique_ptr<Device> inner_;
    FaultScript& script_;
    std::atomic<bool> failed_{false};
};

class FaultyChannel final : public Channel {
 public:
    FaultyChannel(const ChannelOptions& options, FaultyDevice& device)
        : Channel(options), device_(device), memory_(2 * options.pinned) {
        read_staging_.assign(memory_.data(), options.pinned);
        write_staging_.assign(memory_.data() + options.pinned, options.pinned);
    }
    bool receives_into(const Slab& slab, std::uint32_t length) const override {
        return slab.cpu != nullptr && length <= device_.script().in_place_up_to;
    }

 protected:
    void progress(CopyQueue& queued) override {
        while (!queued.empty()) {
            in_flight_.push(*queued.pop());
            ++waiting_;
        }
        FaultScript& script = device_.script();
        if (script.hold || ++polls_ < script.polls_per_copy) return;
        polls_ = 0;
        for (std::uint32_t left = waiting_; left != 0; --left) {
            Copy& copy = *in_flight_.pop();
            --waiting_;
            finish(copy, perform(copy));
        }
    }

 private:
    Status perform(const Copy& copy) {
        FaultScript& script = device_.script();
        ++script.copies_seen;
        if (copy.revocable) ++script.revocable_copies_seen;
        if (copy.kind == Copy::Kind::zero) ++script.zero_copies_seen;
        if (expires(script.copies_until_held)) script.hold = true;
        if (expires(script.copies_until_dead)) device_.fail();
        if (device_.failed() || expires(script.copies_until_failure)) return Status::io_error;
        auto* const memory = reinterpret_cast<std::byte*>(copy.address);
        switch (copy.kind) {
            case Copy::Kind::read:
                std::memcpy(copy.staging, memory, copy.length);
                break;
            case Copy::Kind::write:
                std::memcpy(memory, copy.staging, copy.length);
                break;
            case Copy::Kind::zero:
                std::memset(memory, 0, copy.length);
                break;
        }
        return Status::ok;
    }

    FaultyDevice& device_;
    std::vector<std::byte> memory_;
    CopyQueue in_flight_;
    std::uint32_t waiting_ = 0;
    std::uint32_t polls_ = 0;
};

std::unique_ptr<Channel> FaultyDevice::open_channel(const ChannelOptions& options) {
    return std::make_unique<FaultyChannel>(options, *this);
}

}  // namespace

std::unique_ptr<Device> make_faulty_device(std::unique_ptr<Device> inner, FaultScript& script) {
    return std::make_unique<FaultyDevice>(std::move(inner), script);
}

}  // namespace gpunbd::storage
