// What a worker counts, each described once: a worker has these structures with a Counter per
// value, and a status has them with the sums over the workers. To count something else, add a
// member, name it in members(), and add its field in server/admin/model.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "protocol/constants.hpp"
#include "storage/base/counter.hpp"
#include "storage/base/histogram.hpp"

namespace gpunbd::server {

using storage::Counter;
using CountsByReason = std::map<std::string, std::uint64_t>;

// --- counters by reason

// Why a handshake ended without an export.
enum class HandshakeFailure : std::uint8_t {
    hung_up,      // the client
    aborted,      // by the client, with NBD_OPT_ABORT
    refused,      // the client may open no such export
    protocol,     // the client violated the protocol
    tls,          // the TLS handshake failed
    timeout,      // the deadline passed
    evicted,      // for another connection
    export_gone,  // removed by a reload
    closed,       // by this server, for another reason
};
struct HandshakeFailures {
    static constexpr std::array names{"hung_up", "aborted", "refused",     "protocol", "tls",
                                      "timeout", "evicted", "export_gone", "closed"};
    static constexpr std::size_t size = names.size();
    static constexpr bool report_zeroes = true;
    static std::string_view name(std::size_t index) { return names[index]; }
};

// The errors that are counted.
struct RequestErrors {
    static constexpr std::array errors{
        protocol::Error::eperm,   protocol::Error::eio,       protocol::Error::enomem,
        protocol::Error::einval,  protocol::Error::enospc,    protocol::Error::eoverflow,
        protocol::Error::enotsup, protocol::Error::eshutdown,
    };
    static constexpr std::size_t size = errors.size();
    static constexpr bool report_zeroes = false;
    static std::string_view name(std::size_t index) { return protocol::name_of(errors[index]); }
};

template <class Reasons>
struct CountersByReason : std::array<Counter, Reasons::size> {};
template <class Count, class Reasons>
using ByReason =
    std::conditional_t<std::same_as<Count, Counter>, CountersByReason<Reasons>, CountsByReason>;

// --- the counts

template <class Count>
struct WorkerCounts {
    Count handshakes{};
    Count tls_handshakes{};
    ByReason<Count, HandshakeFailures> failed_handshakes{};

    static constexpr auto members() {
        using Self = WorkerCounts;
        return std::tuple{&Self::handshakes, &Self::tls_handshakes, &Self::failed_handshakes};
    }
};

template <class Count>
struct ConnectionCounts {
    Count requests{};   // taken
    Count in_flight{};  // of those, not answered yet
    Count errors{};
    Count read{};  // bytes
    Count written{};

    static constexpr auto members() {
        using Self = ConnectionCounts;
        return std::tuple{&Self::requests, &Self::in_flight, &Self::errors, &Self::read,
                          &Self::written};
    }
};

// Of all clients.
template <class Count>
struct ExportCounts {
    Count held_back{};

    static constexpr auto members() {
        using Self = ExportCounts;
        return std::tuple{&Self::held_back};
    }
};

// Requests of one type of an export.
template <class Count>
struct RequestCounts {
    Count requests{};  // answered with or without an error
    Count bytes{};
    ByReason<Count, RequestErrors> errors{};
    storage::Histogram latency{};

    static constexpr std::array<std::string_view, 2> expected_errors{"EIO", "ENOSPC"};
    static constexpr auto members() {
        using Self = RequestCounts;
        return std::tuple{&Self::requests, &Self::bytes, &Self::errors, &Self::latency};
    }
};

// --- sums over the workers

inline void add(std::uint64_t& sum, const Counter& counted) { sum += counted.value(); }
inline void add(storage::Histogram& sum, const storage::Histogram& counted) { sum.add(counted); }
template <class Reasons>
void add(CountsByReason& sum, const CountersByReason<Reasons>& counted) {
    for (std::size_t i = 0; i != Reasons::size; ++i) {
        const std::uint64_t times = counted[i].value();
        if (times != 0 || Reasons::report_zeroes) sum[std::string(Reasons::name(i))] += times;
    }
}

template <template <class> class Counts>
void add(Counts<std::uint64_t>& sum, const Counts<Counter>& counted) {
    const auto add_each = [&](const auto&... to) {
        const auto from = [&](const auto&... each) { (add(sum.*to, counted.*each), ...); };
        std::apply(from, Counts<Counter>::members());
    };
    std::apply(add_each, Counts<std::uint64_t>::members());
}

}  // namespace gpunbd::server
