#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "protocol/constants.hpp"
#include "protocol/gate.hpp"
#include "storage/base/status.hpp"

namespace gpunbd::storage {
class Volume;
}

namespace gpunbd::server {

// The NBD error of each storage status. ENOMEM is never used ("Error values").

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

// Log lines about refused and failed requests of one connection: at most one each second, with the
// number of those left out.
class FailureLog {
 public:
    explicit FailureLog(std::string peer) : peer_(std::move(peer)) {}

    void serve(std::string export_name) { export_name_ = std::move(export_name); }
    void report_refusal(const protocol::Refusal& refusal);
    void report_failure(const protocol::Command& command, storage::Status status,
                        const storage::Volume& volume);

 private:
    using Clock = std::chrono::steady_clock;

    // false: the line is left out and counted.
    bool may_report();
    std::string take_unreported_text();

    const std::string peer_;
    std::string export_name_;
    Clock::time_point last_report_;
    std::uint64_t unreported_ = 0;
};

}  // namespace gpunbd::server
