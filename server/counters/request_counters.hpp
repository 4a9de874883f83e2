// What one worker counts of the requests for one export, by their types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "protocol/constants.hpp"
#include "storage/counter.hpp"
#include "storage/histogram.hpp"

namespace gpunbd::server {

using storage::Counter;

// The errors that a request can have, each with a place.
inline constexpr std::array request_errors{
    protocol::Error::eperm,   protocol::Error::eio,       protocol::Error::enomem,
    protocol::Error::einval,  protocol::Error::enospc,    protocol::Error::eoverflow,
    protocol::Error::enotsup, protocol::Error::eshutdown,
};

struct RequestCounters {
    Counter begun;
    Counter answered;   // with or without an error
    Counter abandoned;  // for want of a client: never answered
    Counter bytes;      // that the answered ones were about
    std::array<Counter, request_errors.size()> errors;
    storage::Histogram latency;  // off the socket -> all of the answer is ready

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

// Of all clients of a worker. It stays as long as the server, also when its export has gone and
// another of that name comes.
struct ExportCounters {
    // Types that the protocol does not know share the last place.
    static constexpr std::size_t types =
        static_cast<std::size_t>(protocol::CommandType::block_status) + 2;

    explicit ExportCounters(std::string export_name) : name(std::move(export_name)) {}

    RequestCounters& of(protocol::CommandType type) {
        return by_type[static_cast<std::size_t>(type)];
    }
    RequestCounters& of(std::uint16_t type) { return by_type[type < types - 1 ? type : types - 1]; }

    const std::string name;
    std::array<RequestCounters, types> by_type;
    Counter held_back;  // requests that had to wait for the rates
};

}  // namespace gpunbd::server
