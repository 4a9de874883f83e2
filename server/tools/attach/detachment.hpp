#pragma once

#include <optional>
#include <string>

#include "server/tools/attach/device.hpp"
#include "server/tools/client/failure.hpp"

namespace gpunbd::attach {

// A failure that may repeat each second and should be logged once.
class RepeatedFailure {
 public:
    // False if the last call had the same text, apart from numbers.
    bool is_new(std::string text) {
        std::erase_if(text, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
        if (text == last_) return false;
        last_ = std::move(text);
        return true;
    }

 private:
    std::string last_;
};

// Removes all uses of a disk when the machine shuts down: mounts, swap, and device mapper and md
// devices built on it.

// Removes as much as possible, from the top of the stack down. Returns the first failure. Blocks
// until dirty data is written. `disk`: its name in the kernel; `root`: the folder that contains sys
// and proc.
std::optional<Failure> dismantle(const std::string& disk, const std::string& root = "/");

// Detaches a device that is not in use.

// Ends swapping to the device and then disconnects it. On failure the device stays attached, but
// swap may be off.
std::optional<Failure> detach(const Device& device);
// Disconnects the device even if it is in use. Its users get I/O errors. The device exists until
// its last user closes it.
std::optional<Failure> detach_by_force(const Device& device);

}  // namespace gpunbd::attach
