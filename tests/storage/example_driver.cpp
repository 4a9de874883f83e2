#include "tests/storage/example_driver.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "storage/base/private_memory.hpp"

namespace gpunbd::storage::test {

namespace {

std::byte* pointer(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

// One worker's connection to the device. Only that worker's thread calls it.
class ExampleChannel final : public Channel {
 public:
    // Staging memory is allocated once, half of it for each direction, so that requests never
    // allocate. A real driver registers it with its device.
    explicit ExampleChannel(const ChannelOptions& options)
        : Channel(options), memory_(2 * options_.pinned) {
        read_staging_.assign(memory_.data(), options_.pinned);
        write_staging_.assign(memory_.data() + options_.pinned, options_.pinned);
    }
    // The CPU cannot write to the slabs, so payload passes through staging memory.
    bool receives_into(const Slab&, std::uint32_t) const override { return false; }

 protected:
    // Submits what was queued in this round, and finishes the copies that have ended. It must not
    // wait: a driver with a queue of its own starts copies here and finishes them in a later call.
    void progress(CopyQueue& queued) override {
        for (std::uint64_t copied = 0; !queued.empty() && copied < bytes_per_call;) {
            Copy& copy = *queued.pop();
            copied += copy.length;
            count(PathKind::copy_engine, copy);
            switch (copy.kind) {
                case Copy::Kind::read:
                    std::memcpy(copy.staging, pointer(copy.address), copy.length);
                    break;
                case Copy::Kind::write:
                    std::memcpy(pointer(copy.address), copy.staging, copy.length);
                    break;
                case Copy::Kind::zero:
                    std::memset(pointer(copy.address), 0, copy.length);
                    break;
            }
            // A failed copy ends with Status::io_error: the client gets EIO. The owner may prepare
            // the same object for its next copy, so `copy` must not be used after this.
            finish(copy, Status::ok);
        }
    }

 private:
    static constexpr std::uint64_t bytes_per_call = 4 << 20;  // other clients wait for so long

    const PrivateMemory memory_;
};

// The memory. Any thread calls its functions at any time.
class ExampleDevice final : public Device {
 public:
    ExampleDevice(std::uint32_t number, const DeviceOptions& options) : Device(number) {
        info_.id = info_.identity = "example";
        info_.name = "memory of this process";
        info_.total = 1 << 30;
        info_.capacity = options.capacity;
    }
    const DeviceInfo& info() const override { return info_; }
    std::uint64_t available() const override {
        const std::uint64_t used = used_;
        return info_.size() - std::min(info_.size(), used);
    }
    // Slabs read as zeroes, and are counted before they are allocated: threads that allocate at the
    // same time must not exceed the capacity. This device cannot keep slabs; reason_not_kept() of
    // the base class says so, and `request.kept` is never set.
    Status allocate(const SlabRequest& request, Slab& out) override {
        if (used_.fetch_add(request.bytes) + request.bytes <= info_.size()) {
            if (void* const memory = std::calloc(1, request.bytes)) {
                out.address = reinterpret_cast<std::uintptr_t>(memory);
                out.bytes = request.bytes;
                out.resident = request.provision == Provision::full;
                return Status::ok;
            }
        }
        used_ -= request.bytes;
        return Status::no_space;  // volumes then use spill memory, or the client gets ENOSPC
    }
    void release(Slab& slab) noexcept override {
        std::free(pointer(slab.address));
        used_ -= slab.bytes;
        slab = Slab{};
    }
    // The range reads as zeroes when this returns. Pages that a client had are cleared before
    // another client gets them.
    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        std::memset(pointer(slab.address + offset), 0, bytes);
        return Status::ok;
    }
    std::unique_ptr<Channel> open_channel(const ChannelOptions& options) override {
        return std::make_unique<ExampleChannel>(options);
    }

 private:
    DeviceInfo info_;
    std::atomic<std::uint64_t> used_{0};  // bytes of all slabs
};

// Finds the devices and opens them.
class ExampleDriver final : public DeviceDriver {
 public:
    std::string_view scheme() const override { return "example"; }
    bool drives_gpus() const override { return false; }
    config::DriverInfo info() const override {
        return {.form = "example",
                .description = "example, memory of the process",
                .example = "example",
                .parse = [](std::string_view text) {
                    return text == "example" ? std::optional<std::string>(text) : std::nullopt;
                }};
    }
    std::vector<std::string> enumerate(std::string&) const override { return {"example"}; }
    // What is missing on this machine is one line of a std::runtime_error.
    std::unique_ptr<Device> open(std::string_view id, std::uint32_t number,
                                 const DeviceOptions& options) const override {
        if (id != scheme()) return nullptr;
        return std::make_unique<ExampleDevice>(number, options);
    }
};

}  // namespace

const DeviceDriver& example_driver() {
    static const ExampleDriver driver;
    return driver;
}

}  // namespace gpunbd::storage::test
