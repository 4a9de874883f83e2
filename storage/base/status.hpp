// Results of storage operations. The server maps them to NBD errors in one table. The log line of
// the device has the details: the CUDA error, the device and the address.
#pragma once

#include <cstdint>

namespace gpunbd::storage {

enum class Status : std::uint8_t {
    ok,
    no_space,  // the device has no memory for a page
    io_error,  // a copy failed, or the device has failed permanently
};

}  // namespace gpunbd::storage
