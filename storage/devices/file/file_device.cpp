#include "storage/devices/file/file_device.hpp"

#include <fmt/format.h>

#include <new>
#include <optional>
#include <stdexcept>

#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/base/mutex.hpp"
#include "storage/devices/device_driver.hpp"
#include "storage/devices/file/file_channel.hpp"
#include "storage/devices/file/file_io.hpp"
#include "storage/devices/file/file_state.hpp"
#include "storage/devices/ranges.hpp"

namespace gpunbd::storage {

namespace {

std::uint64_t whole_blocks(std::uint64_t bytes) { return bytes / block_bytes * block_bytes; }

class FileDevice final : public Device {
 public:
    FileDevice(std::uint32_t number, const std::string& path, const FileDeviceOptions& options)
        : Device(number),
          state_("file:" + path, path, whole_blocks(options.capacity)),
          ranges_(whole_blocks(options.capacity)) {
        if (options.encrypt) {
            state_.key.emplace();
            const BlockCipher checked(*state_.key);
        }
        std::string reason = options.io_uring ? UringQueue::reason_unavailable() : "not wanted";
        if (!reason.empty()) {
            state_.threads = std::make_unique<IoThreads>(state_.file.descriptor());
        }
        info_.id = state_.id;
        info_.name = "spill file";
        info_.identity = state_.id;
        info_.access = fmt::format(
            "{}, {}, {}",
            reason.empty() ? "io_uring" : fmt::format("threads (io_uring: {})", reason),
            state_.file.direct() ? "direct I/O" : "page cache (no direct I/O in its file system)",
            options.encrypt ? "encrypted" : "not encrypted");
        info_.total = ranges_.free_bytes();
        LogLine(spdlog::level::info)
            .with("device", info_.id)
            .log("{}: {} MiB are reserved; {}", info_.id, info_.total >> 20, info_.access);
    }

    const DeviceInfo& info() const override { return info_; }
    std::uint64_t available() const override {
        if (failed()) return 0;
        const Lock lock(mutex_);
        return ranges_.free_bytes();
    }
    bool failed() const override { return state_.failed.load(std::memory_order_acquire); }
    bool readable() const override { return true; }
    DeviceUse use(std::uint64_t) const override { return {}; }
    // The file is locked, and a second process would need the key.
    bool exclusive() const override { return true; }
    std::string reason_not_kept() const override {
        return "the contents of the file end with the server";
    }

    Status allocate(const SlabRequest& request, Slab& out) override {
        if (request.kept || failed()) return Status::io_error;
        const auto offset = take(request.bytes);
        if (!offset) return Status::no_space;
        out = {.cpu = {},
               .address = SpillFile::header_bytes + *offset,
               .bytes = request.bytes,
               .handle = *offset,
               .resident = request.provision == Provision::full};
        return Status::ok;
    }
    void release(Slab& slab) noexcept override {
        state_.written.reset(BlockRange::around(slab.address, slab.bytes));
        const Lock lock(mutex_);
        ranges_.give_back(slab.handle);
        slab = Slab{};
    }
    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        GPUNBD_ASSERT((slab.address + offset) % block_bytes == 0 && bytes % block_bytes == 0,
                      "pages consist of whole blocks");
        state_.written.reset(BlockRange::within(slab.address + offset, bytes));
        return Status::ok;
    }
    // The blocks of the file stay reserved: if this machine swaps to an export, a move to the file
    // must not depend on space that others may have taken.
    bool discard(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        return clear(slab, offset, bytes) == Status::ok;
    }
    std::unique_ptr<Channel> open_channel(const ChannelOptions& options) override {
        return std::make_unique<FileChannel>(options, state_);
    }

 private:
    std::optional<std::uint64_t> take(std::uint64_t bytes) {
        try {
            const Lock lock(mutex_);
            return ranges_.take(BlockRange::around(0, bytes).count() * block_bytes);
        } catch (const std::bad_alloc&) {
            return std::nullopt;
        }
    }

    FileState state_;
    DeviceInfo info_;
    mutable Mutex mutex_;
    Ranges ranges_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Device> open_file_device(std::uint32_t number, const std::string& path,
                                         const FileDeviceOptions& options) {
    const auto named = [&](const std::exception& error) {
        return fmt::format("file:{}: {}", path, error.what());
    };
    try {
        if (options.capacity < block_bytes) {
            throw std::runtime_error("its size is unknown; set its capacity");
        }
        return std::make_unique<FileDevice>(number, path, options);
    } catch (const DeviceInUse& error) {
        throw DeviceInUse(named(error));
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(named(error));
    }
}

}  // namespace gpunbd::storage
