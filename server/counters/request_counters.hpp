// Counters of one worker for the requests of one export, by type.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "protocol/constants.hpp"
#include "server/counters/counts.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

struct RequestsBegun {
    Counter begun;
    Counter abandoned;  // never answered, since the client is gone
};

struct RequestCounters : RequestsBegun, RequestCounts<Counter> {
    void count_answer(std::uint64_t length) {
        requests.add();
        bytes.add(length);
    }
    void failed(protocol::Error error) {
        GPUNBD_ASSERT(std::ranges::count(RequestErrors::errors, error) == 1,
                      "each error that is sent is counted under one name");
        for (std::size_t i = 0; i != RequestErrors::size; ++i) {
            if (RequestErrors::errors[i] == error) errors[i].add();
        }
    }
};

// For all clients of a worker. It lives as long as the server, even if its export is removed and
// another of that name is added. A renamed export takes its counters along.
struct ExportCounters : ExportCounts<Counter> {
    // Unknown types share the last index.
    static constexpr std::size_t types = protocol::command_types + 1;

    RequestCounters& of(protocol::CommandType type) {
        GPUNBD_ASSERT(static_cast<std::size_t>(type) < types - 1, "a command has a known type");
        return by_type[static_cast<std::size_t>(type)];
    }
    RequestCounters& of(std::uint16_t type) { return by_type[type < types - 1 ? type : types - 1]; }

    std::array<RequestCounters, types> by_type;
};

}  // namespace gpunbd::server
