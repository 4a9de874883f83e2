// Counters of one worker for the requests of one export, by type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "protocol/constants.hpp"
#include "storage/base/counter.hpp"
#include "storage/base/histogram.hpp"

namespace gpunbd::server {

using storage::Counter;

// The errors that are counted, each with an index.
inline constexpr std::array request_errors{
    protocol::Error::eperm,   protocol::Error::eio,       protocol::Error::enomem,
    protocol::Error::einval,  protocol::Error::enospc,    protocol::Error::eoverflow,
    protocol::Error::enotsup, protocol::Error::eshutdown,
};

struct RequestCounters {
    Counter begun;
    Counter answered;   // with or without an error
    Counter abandoned;  // never answered, since the client is gone
    Counter bytes;      // of the answered ones; for READs, bytes sent
    std::array<Counter, request_errors.size()> errors;
    storage::Histogram latency;  // received -> the whole answer is queued

    void count_answer(std::uint64_t length) {
        answered.add();
        bytes.add(length);
    }
    void failed(protocol::Error error) {
        for (std::size_t i = 0; i != request_errors.size(); ++i) {
            if (request_errors[i] == error) errors[i].add();
        }
    }
};

// For all clients of a worker. It lives as long as the server, even if its export is removed and
// another of that name is added.
struct ExportCounters {
    // Unknown types share the last index.
    static constexpr std::size_t types = protocol::command_types + 1;

    explicit ExportCounters(std::string export_name) : name(std::move(export_name)) {}

    RequestCounters& of(protocol::CommandType type) {
        return by_type[static_cast<std::size_t>(type)];
    }
    RequestCounters& of(std::uint16_t type) { return by_type[type < types - 1 ? type : types - 1]; }

    const std::string name;
    std::array<RequestCounters, types> by_type;
    Counter held_back;  // requests that waited for the rate limits
};

}  // namespace gpunbd::server
