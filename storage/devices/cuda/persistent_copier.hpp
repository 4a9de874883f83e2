// The CPU's side of the persistent kernel: posts copies to its mailbox, sees them served, and
// launches it when it has ended and there is work. While it runs, a copy costs no call into the
// driver at all.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>

#include "storage/devices/channel.hpp"
#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/cuda/persistent_kernel.hpp"

namespace gpunbd::storage::cuda {

// Where the CPU posts: best in GPU memory that it addresses, else in pinned memory.
struct MailboxMemory {
    Mailbox* cpu = nullptr;
    const Mailbox* device = nullptr;
    std::shared_ptr<void> owner;
};

class PersistentCopier {
 public:
    // The kernel ends when nothing has been posted for so long: it outlasts the pauses of a busy
    // client, and leaves an idle GPU idle.
    static constexpr std::chrono::microseconds linger{200};

    // `mailbox` is zero and of this object alone. Throws std::runtime_error.
    PersistentCopier(int ordinal, int numa_node, std::uint32_t blocks, MailboxMemory mailbox);

    cudaStream_t stream() const { return stream_.get(); }
    static std::uint32_t units_of(const Copy& copy) {
        return (copy.length + copy_unit_bytes - 1) / copy_unit_bytes;
    }
    // Longer copies never have room.
    static bool can_take(const Copy& copy) { return units_of(copy) <= mailbox_places / 2; }
    bool has_room(const Copy& copy) const {
        return units_of(copy) <= mailbox_places - (next_ - first_);
    }
    bool idle() const { return first_ == next_; }
    bool running() const;
    // The oldest copy that is not served yet, or null.
    const Copy* oldest() const;

    // Loads the kernel's code, and waits for it.
    cudaError_t warm_up();
    // There is room. The kernel sees it after post().
    void add(Copy& copy);
    cudaError_t post();
    // Launches the kernel where it has ended with copies unserved.
    cudaError_t keep_alive();
    // It is not running: launches the kernel for copies to come.
    cudaError_t launch();
    // A copy that has been served, in the order of add(), or null.
    Copy* take_ended();
    // Any copy, served or not, or null: after the device has failed.
    Copy* take_any();

 private:
    const int ordinal_;
    std::uint32_t blocks_;
    MailboxMemory mailbox_;
    PinnedMemory outcome_memory_;
    DeviceMemory state_memory_;
    Stream stream_;  // goes first, and waits for the kernel
    Outcome* outcome_;
    PersistentKernelState* state_;
    std::array<Copy*, mailbox_places> copies_{};  // by the last unit of each; null for the others
    std::uint32_t first_ = 0;  // units [first_, next_) are not known to be served; they wrap around
    std::uint32_t next_ = 0;
    std::uint32_t posted_ = 0;
    std::uint32_t launched_ = 0;
};

}  // namespace gpunbd::storage::cuda
