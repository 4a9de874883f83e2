// The NBD error of each storage status. ENOMEM is never used ("Error values").
#pragma once

#include <string_view>

#include "protocol/constants.hpp"
#include "storage/base/status.hpp"

namespace gpunbd::server {

constexpr protocol::Error wire_error(storage::Status status) {
    switch (status) {
        case storage::Status::ok:
            return protocol::Error::none;
        case storage::Status::no_space:
            return protocol::Error::enospc;
        case storage::Status::io_error:
            return protocol::Error::eio;
    }
    return protocol::Error::eio;
}

// The message that is sent with it.
constexpr std::string_view wire_text(storage::Status status) {
    switch (status) {
        case storage::Status::ok:
            return {};
        case storage::Status::no_space:
            return "no memory left on the device";
        case storage::Status::io_error:
            return "the device failed";
    }
    return "the device failed";
}

}  // namespace gpunbd::server
