#include "server/trace.hpp"

#include <fmt/format.h>

namespace gpunbd::server {

namespace {

template <typename Pick>
std::string row(const char* name, const char* meaning, const std::vector<const Trace*>& traces,
                Pick pick) {
    storage::Histogram all;
    for (const Trace* trace : traces) all.add(pick(*trace));
    const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) / 1000; };
    return fmt::format("{:<10} {:>12} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f}  {}\n", name,
                       all.count(), us(all.quantile(0.5)), us(all.quantile(0.9)),
                       us(all.quantile(0.99)), us(all.most()), meaning);
}

}  // namespace

std::string describe_traces(const std::vector<const Trace*>& traces) {
    return fmt::format("{:<10} {:>12} {:>10} {:>10} {:>10} {:>10}\n", "stage", "count", "p50 us",
                       "p90 us", "p99 us", "max us") +
           row("received", "a request waited behind others of its connection", traces,
               [](const Trace& trace) -> const auto& { return trace.received; }) +
           row("payload", "a WRITE waited for its payload", traces,
               [](const Trace& trace) -> const auto& { return trace.payload; }) +
           row("queued", "a copy waited for the end of the turn", traces,
               [](const Trace& trace) -> const auto& { return trace.lanes.queued; }) +
           row("submitted", "a copy was on the device", traces,
               [](const Trace& trace) -> const auto& { return trace.lanes.submitted; }) +
           row("sent", "an answer waited for the socket", traces,
               [](const Trace& trace) -> const auto& { return trace.sent; }) +
           row("READ", "all of it, to the answer being ready", traces,
               [](const Trace& trace) -> const auto& { return trace.read; }) +
           row("WRITE", "all of it, to the answer being ready", traces,
               [](const Trace& trace) -> const auto& { return trace.write; });
}

}  // namespace gpunbd::server
