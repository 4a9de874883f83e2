// The memory through which the CPU posts to a persistent kernel: GPU memory that the CPU can
// address, or pinned memory. The device allocates it for the path of a channel.
#pragma once

#include <memory>

#include "storage/devices/cuda/persistent_kernel.hpp"

namespace gpunbd::storage::cuda {

struct MailboxMemory {
    Mailbox* cpu = nullptr;
    const Mailbox* device = nullptr;
    std::shared_ptr<void> owner;
};

}  // namespace gpunbd::storage::cuda
