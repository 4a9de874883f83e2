// The common command-line options of the programs in this folder, and the output of their results.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/bench/connection.hpp"
#include "tests/bench/driver.hpp"
#include "tests/bench/load.hpp"

namespace gpunbd::bench {

struct LoadOptions {
    std::string operation = "read";  // read, write or rw
    std::uint64_t size = 4096;
    std::uint64_t depth = 32;
    std::uint64_t connections = 1;
    std::uint64_t threads = 0;  // 0: one per connection
    bool random = true;
    std::uint64_t offset = 0;
    std::uint64_t span = 0;  // 0: all of the export
    bool prefill = false;
    std::uint64_t seed = 1;
    std::uint64_t receive_buffer = 0;  // SO_RCVBUF; 0: the kernel's
    bool structured = false;
    Window window;

    bool writes(std::size_t connection) const {
        return operation == "write" || (operation == "rw" && connection % 2 == 1);
    }
};

// Adds an option with a size as its value, such as 4096, 4k or 1MiB. Units are binary.
inline CLI::Option* add_size(CLI::App& app, const std::string& name, std::uint64_t& size,
                             const std::string& help) {
    return app.add_option(name, size, help)->transform(CLI::AsSizeValue(false));
}

inline CLI::Option* add_seconds(CLI::App& app, const std::string& name, double& seconds,
                                const std::string& help) {
    return app.add_option(name, seconds, help)->check(CLI::NonNegativeNumber);
}

// Adds the options of every program in this folder. The last of repeated options counts.
inline void add_common_options(CLI::App& app, LoadOptions& options) {
    app.option_defaults()->take_last();
    app.add_option("--op", options.operation,
                   "read, write, or rw: half of the connections read, half write (read)")
        ->check(CLI::IsMember({"read", "write", "rw"}));
    add_size(app, "--size", options.size, "size of a request (4k)");
    app.add_option("--qd", options.depth, "requests in flight per connection (32)");
    app.add_option("--connections", options.connections, "number of connections (1)");
    app.add_option("--threads", options.threads,
                   "number of threads that share the connections (one per connection)");
    add_seconds(app, "--warmup", options.window.warm_up,
                "seconds before the measured window (0.5)");
    add_seconds(app, "--seconds", options.window.measured,
                "length of the measured window in seconds (2)");
    add_size(app, "--rcvbuf", options.receive_buffer, "size of the receive buffer (the kernel's)");
    app.add_option("--timeout", options.window.stall,
                   "seconds without any reply after which the server counts as hung (30)");
}

// Returns the exit status if the program ends here: after --help, or because of wrong usage.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    return std::nullopt;
}

// A JSON object on one line.
class Json {
 public:
    Json& text(std::string_view key, std::string_view value) {
        std::string quoted = "\"";
        for (const char c : value) {
            if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20) {
                quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
            } else {
                quoted += c;
            }
        }
        return raw(key, quoted + "\"");
    }
    Json& number(std::string_view key, std::uint64_t value) {
        return raw(key, std::to_string(value));
    }
    Json& number(std::string_view key, double value, int digits) {
        return raw(key, fmt::format("{:.{}f}", value, digits));
    }
    Json& flag(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
    Json& null(std::string_view key) { return raw(key, "null"); }
    Json& object(std::string_view key, const Json& value) { return raw(key, value.line()); }
    Json& raw(std::string_view key, const std::string& value) {
        if (!body_.empty()) body_ += ", ";
        body_.append("\"").append(key).append("\": ").append(value);
        return *this;
    }
    std::string line() const { return "{" + body_ + "}"; }

 private:
    std::string body_;
};

inline void add_tally(Json& json, const Tally& tally, double seconds) {
    const auto rate = [seconds](std::uint64_t count) {
        return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
    };
    const auto micro = [&tally](double share) { return tally.latency.percentile(share) / 1e3; };
    json.number("iops", rate(tally.operations), 0)
        .number("mbps", rate(tally.bytes) / 1e6, 1)
        .number("p50_us", micro(0.5), 2)
        .number("p90_us", micro(0.9), 2)
        .number("p99_us", micro(0.99), 2)
        .number("p999_us", micro(0.999), 2)
        .number("max_us", micro(1), 2)
        .number("operations", tally.operations)
        .number("errors", tally.errors);
}

// Checks the used part of the export, which is [options.offset, options.offset + options.span).
// Returns the available length from the offset on.
inline std::uint64_t check_part(const LoadOptions& options, const ExportInfo& info) {
    if (options.offset >= info.size) fail("--offset is past the end of the export");
    const auto room = info.size - options.offset;
    if (options.span > room) fail("--span reaches past the end of the export");
    return room;
}

inline void check_writable(const ExportInfo& info) {
    if ((info.flags & protocol::transmission_flag::read_only) != 0) fail("the export is read-only");
}

// Checks the options against the export, prefills, measures, and prints one line of JSON. Returns
// the exit status: 0, or 1 if a reply was an error or the run failed.
inline int run_load(const LoadOptions& options, const ExportInfo& info, std::vector<Socket> sockets,
                    std::string_view tool, std::string_view transport) {
    constexpr std::uint64_t prefill_size = 1 << 20;
    constexpr std::uint64_t max_depth = 1 << 16;
    if (options.size == 0 || options.size > info.max_payload)
        fail(fmt::format("--size must be 1 to {} bytes here", info.max_payload));
    if (options.depth == 0 || options.depth > max_depth) fail("--qd must be 1 to 65536");
    if (options.operation == "rw" && options.connections < 2)
        fail("--op rw needs at least 2 connections: half of them read, half write");
    if (options.size % info.min_block != 0 || options.offset % info.min_block != 0)
        fail(fmt::format("--size and --offset must be multiples of the export's block of {} bytes",
                         info.min_block));
    const auto room = check_part(options, info);
    const auto span = options.span == 0 ? room : options.span;
    const auto shares = options.random ? 1 : options.connections;
    const auto blocks = span / options.size;
    if (blocks < shares) fail("--span is too small for one request per connection");
    if (options.random && (blocks >> 32) != 0) fail("--span holds more than 2^32 blocks");
    if (options.operation != "read" || options.prefill) check_writable(info);

    // Not zero, not compressible and without repeated blocks, so that no server can optimize it
    // away.
    std::vector<std::byte> payload(std::max(options.size, prefill_size));
    Random random(options.seed ^ 0x5eed);
    for (std::size_t i = 0; i + 8 <= payload.size(); i += 8)
        protocol::store_be(&payload[i], random.next());

    std::vector<DriverPtr> drivers;
    for (auto& socket : sockets) {
        const auto bytes = static_cast<int>(options.receive_buffer);
        if (bytes > 0) setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
        drivers.push_back(
            std::make_unique<Driver>(std::move(socket), options.structured, payload.data()));
    }
    const auto threads =
        static_cast<std::size_t>(options.threads == 0 ? options.connections : options.threads);
    const auto complain = [tool](const std::string& what) {
        fmt::print(stderr, "{}: {}\n", tool, what);
    };

    if (options.prefill) {
        const auto chunk = std::min({prefill_size, std::uint64_t{info.max_payload}, span});
        const auto each = (span / chunk / drivers.size()) * chunk;
        for (std::size_t i = 0; i < drivers.size(); ++i) {
            const auto begin = options.offset + i * each;
            const auto end = i + 1 == drivers.size() ? options.offset + span : begin + each;
            drivers[i]->start({.write = true,
                               .random = false,
                               .once = true,
                               .size = static_cast<std::uint32_t>(chunk),
                               .depth = begin == end ? 0U : 8U,
                               .begin = begin,
                               .end = end});
        }
        auto untimed = options.window;
        untimed.measured = 0;
        const auto filled = run_window(drivers, threads, untimed);
        auto failure = filled.failure;
        for (const auto& driver : drivers)
            if (failure.empty()) failure = driver->first_error();
        if (!failure.empty()) {
            complain("prefill: " + failure);
            return 1;
        }
    }

    for (std::size_t i = 0; i < drivers.size(); ++i) {
        const auto part = options.random ? span : blocks / shares * options.size;
        const auto begin = options.offset + (options.random ? 0 : i * part);
        drivers[i]->start({.write = options.writes(i),
                           .random = options.random,
                           .size = static_cast<std::uint32_t>(options.size),
                           .depth = static_cast<std::uint32_t>(options.depth),
                           .begin = begin,
                           .end = begin + part,
                           .seed = options.seed * 1000 + i});
    }
    const auto result = run_window(drivers, threads, options.window);

    std::string failure = result.failure;
    Tally reads;
    Tally writes;
    for (const auto& driver : drivers) {
        (driver->plan().write ? writes : reads).merge(driver->tally());
        if (failure.empty()) failure = driver->first_error();
        disconnect(driver->socket());
    }
    Tally all = reads;
    all.merge(writes);

    Json json;
    json.text("tool", tool)
        .text("transport", transport)
        .text("op", options.operation)
        .number("size", options.size)
        .number("qd", options.depth)
        .number("connections", options.connections)
        .number("threads", std::uint64_t{std::min(threads, drivers.size())})
        .text("pattern", options.random ? "random" : "sequential")
        .number("span", span)
        .flag("structured", options.structured)
        .number("seconds", result.seconds, 3);
    add_tally(json, all, result.seconds);
    const auto per_io = [&all](std::uint64_t nanoseconds) {
        return static_cast<double>(nanoseconds) / 1e3 / static_cast<double>(all.operations);
    };
    if (result.server_cpu_ns && all.operations > 0)
        json.number("server_cpu_us_per_io", per_io(*result.server_cpu_ns), 3)
            .number("server_cores",
                    static_cast<double>(*result.server_cpu_ns) / 1e9 / result.seconds, 3);
    else
        json.null("server_cpu_us_per_io").null("server_cores");
    if (all.operations > 0)
        json.number("client_cpu_us_per_io", per_io(result.client_cpu_ns), 3);
    else
        json.null("client_cpu_us_per_io");
    const auto direction = [&json, &result](std::string_view key, const Tally& tally) {
        Json part;
        add_tally(part, tally, result.seconds);
        json.object(key, part);
    };
    if (options.operation != "write") direction("read", reads);
    if (options.operation != "read") direction("write", writes);
    if (!failure.empty()) json.text("failure", failure);
    std::puts(json.line().c_str());

    if (failure.empty() && all.operations == 0) failure = "no request was answered in time";
    if (!failure.empty()) complain(failure);
    return failure.empty() && all.errors == 0 ? 0 : 1;
}

}  // namespace gpunbd::bench
