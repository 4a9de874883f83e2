// The path by the persistent kernel: posts copies to its mailbox, sees them served, and launches it
// when it has ended and there is work. While it runs, a copy costs no call into the driver at all.
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
    // `mailbox` is zero and of this object alone. Takes no copies if the device has as many such
    // kernels as it may have. Throws std::runtime_error.
    PersistentKernelPath(DeviceState& state, MailboxMemory mailbox);

    // Loads the kernel's code, and waits for it. Throws std::runtime_error.
    void warm_up();

    bool has_place(const Copy& copy) override;
    bool add(Copy& copy) override;
    void submit() override;
    bool take_ended(CopyQueue& ended) override;
    bool idle() const override { return first_ == next_; }
    void look_for_errors() override;
    void take_all(CopyQueue& all) override;

    bool awake() const override { return running(); }
    void pass_by() override;
    void wake() override;

 private:
    // One of the device's places for such kernels, if there was one left.
    class Place {
     public:
        explicit Place(std::atomic<std::int32_t>& places);
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;
        ~Place();
        bool taken() const { return taken_; }

     private:
        std::atomic<std::int32_t>& places_;
        const bool taken_;
    };

    // The kernel ends when nothing has been posted for so long: it outlasts the pauses of a busy
    // client, and leaves an idle GPU idle.
    static constexpr std::chrono::microseconds linger{200};

    bool running() const;
    cudaError_t start();
    // It is not running. Failing that, nothing would serve what has been posted, nor what will be:
    // the device has failed.
    void launch();
    // Launches it where it has ended with copies unserved.
    void keep_alive();
    // The oldest copy that is not served yet, or null.
    const Copy* oldest() const;

    DeviceState& state_;
    const Place place_;
    MailboxMemory mailbox_;
    PinnedMemory outcome_memory_;
    DeviceMemory kernel_state_memory_;
    Stream stream_;  // goes first, and waits for the kernel
    Outcome* outcome_;
    PersistentKernelState* kernel_state_;
    std::array<Copy*, mailbox_places> copies_{};  // by the last unit of each; null for the others
    std::uint32_t first_ = 0;  // units [first_, next_) are not known to be served; they wrap around
    std::uint32_t next_ = 0;
    std::uint32_t posted_ = 0;
    std::uint32_t launched_ = 0;

    bool wakes_ = false;                                 // when the copy that passed by ends
    std::chrono::steady_clock::time_point passed_by_{};  // the end of the last such copy
};

}  // namespace gpunbd::storage::cuda
