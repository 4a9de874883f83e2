// Where the CPU posts to a persistent kernel: best in GPU memory that it addresses, else in pinned
// memory. The device makes it, a channel's path uses it.
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
