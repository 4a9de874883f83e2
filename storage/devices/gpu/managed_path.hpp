// The path of copies to and from managed memory by the CPU, while the driver keeps pages of it on
// the host. An access moves a page that is still on the GPU to the host. The kernel makes the
// copies, because a page cannot be read any more after its GPU has failed: then the copy ends with
// io_error instead of the process with a signal. Copies end in add(), which blocks while a page
// moves, about 0.2 ms for 2 MiB; so the path has room for a limited time in each round.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage {

class ManagedPath final : public CopyPath {
 public:
    ManagedPath();

    // copy.address is also the address for the CPU.
    bool add(Copy& copy) override;
    bool has_room(const Copy&) override { return used_ < round; }
    void submit() override { used_ = {}; }

 private:
    static constexpr std::chrono::microseconds round{500};

    const pid_t process_;
    std::chrono::steady_clock::duration used_{};  // in this round
};

// Zeroes managed memory by the CPU. Blocks.
Status zero_managed(std::uint64_t address, std::uint64_t bytes);

// An empty text, or the reason why this process may not use the path.
std::string reason_without_managed_path();

}  // namespace gpunbd::storage
