// The persistent kernel path: posts copies to the mailbox, polls for their completion, and launches
// the kernel again if it has ended and there is work. While it runs, a copy needs no driver call.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/cuda/device_state.hpp"
#include "storage/devices/cuda/mailbox_memory.hpp"
#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage::cuda {

class PersistentKernelPath final : public LingeringPath {
 public:
    // `mailbox` is zeroed and used by this object only. If the device has as many persistent
    // kernels as it may, this path takes no copies. Throws std::runtime_error.
    PersistentKernelPath(DeviceState& state, MailboxMemory mailbox);

    // Loads the code of the kernel and waits for it. Throws std::runtime_error.
    void warm_up();

    bool has_room(const Copy& copy) override;
    bool add(Copy& copy) override;
    void submit() override;
    bool take_ended(CopyQueue& ended) override;
    bool idle() const override { return first_ == next_; }
    void check_errors() override;
    void take_all(CopyQueue& all) override;

    bool awake() const override { return running(); }
    void pass_by() override;
    void wake() override;

 private:
    // One of the device's slots for persistent kernels, if one was free.
    class Slot {
     public:
        explicit Slot(std::atomic<std::int32_t>& slots);
        Slot(const Slot&) = delete;
        Slot& operator=(const Slot&) = delete;
        ~Slot();
        bool taken() const { return taken_; }

     private:
        std::atomic<std::int32_t>& slots_;
        const bool taken_;
    };

    // The kernel ends when nothing has been posted for this time: longer than the pauses of a busy
    // client, but short enough to leave an idle GPU idle.
    static constexpr std::chrono::microseconds linger{200};

    bool running() const;
    cudaError_t start();
    // Called when the kernel is not running. On failure nothing would serve the mailbox, so the
    // device fails.
    void launch();
    // Launches the kernel again if it has ended with units unserved.
    void keep_alive();
    // The oldest unserved copy, or null.
    const Copy* oldest() const;

    DeviceState& state_;
    const Slot slot_;
    MailboxMemory mailbox_;
    PinnedMemory outcome_memory_;
    DeviceMemory kernel_state_memory_;
    Stream stream_;  // destroyed first; waits for the kernel
    Outcome* outcome_;
    PersistentKernelState* kernel_state_;
    std::array<Copy*, mailbox_slots> copies_{};  // at the last unit of each copy; null elsewhere
    std::uint32_t first_ = 0;  // units [first_, next_) may be unserved; both wrap around
    std::uint32_t next_ = 0;
    std::uint32_t posted_ = 0;
    std::uint32_t launched_ = 0;

    bool wake_pending_ = false;  // launch when the bypassing copy ends
    std::chrono::steady_clock::time_point last_bypass_end_{};  // when the last bypassing copy ended
};

}  // namespace gpunbd::storage::cuda
