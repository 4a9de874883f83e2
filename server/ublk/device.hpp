// The block device of one export: /dev/ublkbN with its queues on the workers.
//
// Another process, or the same one later, continues a device that is recoverable (UBLK_F_USER_
// RECOVERY): after the end of its server the kernel keeps its requests until then.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/nbd/worker.hpp"
#include "server/ublk/control.hpp"
#include "server/ublk/parameters.hpp"
#include "server/ublk/queue.hpp"

namespace gpunbd::server::ublk {

// Whether a server of the export can continue the device.
bool continues(const Export& exported, const DeviceInfo& device);

class Device {
 public:
    struct Options {
        std::shared_ptr<const Export> exported;
        std::uint64_t max_in_flight = 0;  // bytes, of each queue
        bool recoverable = false;         // Export::contents_outlive_server()
    };
    // Makes the device, or continues the one that an earlier server of these contents has left.
    // `control` and the workers outlive it. Blocks. Throws std::runtime_error.
    Device(Control& control, const std::vector<std::unique_ptr<Worker>>& workers, Options options);
    // Calls remove().
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    std::uint32_t id() const { return info_.id; }
    const std::string& path() const { return path_; }
    const Export& exported() const { return *options_.exported; }
    bool recoverable() const { return options_.recoverable; }
    bool recovered() const { return recovered_; }
    bool in_use() const { return ublk::in_use(info_.id); }
    // The rates of the export have changed.
    void update_rates();

    // Removes the device; its requests in progress end first, and dirty pages are written back.
    // Users of the device get I/O errors afterwards. Blocks. May be called twice.
    void remove() noexcept;
    // Requests in flight are answered, later ones wait in the kernel until resume() or for the next
    // server. That server can continue a recoverable device when this process or its workers have
    // ended and this object has been destroyed, in this order: Linux 6.12 never ends the commands
    // of a ring that is closed while its thread lives and requests wait in it.
    void pause();
    bool paused() const;  // no request is in flight
    void resume();
    // pause(), without a way back: the destructor does not remove the device.
    void leave();
    bool leaving() const { return leaving_; }

 private:
    struct Slot;  // of one queue

    // Chooses the id. Finds the device that an earlier server has left for these contents, and
    // removes devices of contents that do not exist any more.
    void find_left(Mark mark);
    void replace(std::uint32_t id);
    void add(Mark mark);
    void open_character_device();
    void open_queues();
    void open_queue(const std::shared_ptr<Slot>& slot, WorkerContext& worker) const;
    void recover();
    void start();
    void close_queues();  // which have no requests
    // These throw std::runtime_error. `result`: a negative errno.
    [[noreturn]] void fail(std::string_view reason) const;
    [[noreturn]] void fail_step(const char* step, int result) const;
    [[noreturn]] void fail_taken(std::uint32_t id) const;

    Control& control_;
    const std::vector<std::unique_ptr<Worker>>& workers_;
    const Options options_;
    std::unique_ptr<ExportUse::Lease> lease_;
    DeviceInfo info_;
    std::string path_;
    OwnedFd character_device_;
    std::vector<std::shared_ptr<Slot>> slots_;
    bool exists_ = false;
    bool recovered_ = false;
    bool leaving_ = false;
};

}  // namespace gpunbd::server::ublk
