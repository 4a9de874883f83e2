// How storage operations end. The server maps these to the wire in one table; the whole truth of a
// failure (the CUDA error's name, the device, the place) is in the log line of the device.
#pragma once

#include <cstdint>

namespace gpunbd::storage {

enum class Status : std::uint8_t {
    ok,
    no_space,  // the device has no memory left for a page
    io_error,  // a copy failed, or the device has failed for good
};

}  // namespace gpunbd::storage
